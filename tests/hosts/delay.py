"""Delay every packet that leaves this network namespace for a subnet: `delay.py MILLISECONDS SUBNET ADDRESS`.

For kernels without netem. The subnet's route leads into a TUN device; what arrives there waits here and is then sent
as it is through the network card. It prints "ready" once it is in place, and the end of the process undoes it.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import queue
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from contextlib import suppress

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
DEVICE, CARD = "slow0", "eth0"
_QUEUE_PACKETS = 20_000


def main(delay_s: float, subnet: str, address: str) -> None:
    tun = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, CARD.encode())
    waiting: queue.Queue[tuple[float, bytes]] = queue.Queue(_QUEUE_PACKETS)

    def send() -> None:
        while True:
            due, packet = waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            with suppress(OSError):  # the card is down: lost, as on a wire
                raw.sendto(packet, (socket.inet_ntoa(packet[16:20]), 0))

    threading.Thread(target=send, daemon=True).start()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    subprocess.run(["ip", "link", "set", DEVICE, "up", "mtu", "1500"], check=True)
    # In two halves, which the kernel prefers to the card's route to the whole; the raw socket, bound to the card, not.
    for half in ipaddress.ip_network(subnet).subnets():
        subprocess.run(["ip", "route", "add", str(half), "dev", DEVICE, "src", address], check=True)
    print("ready", flush=True)
    while True:
        packet = os.read(tun, 65536)
        if packet[0] >> 4 == 4:
            waiting.put((time.monotonic() + delay_s, packet))


if __name__ == "__main__":
    main(float(sys.argv[1]) / 1000, sys.argv[2], sys.argv[3])
