"""Stands for the process that reads a model of elsewhere, when XGBoost crashes in it."""

import os
import signal
import sys

sys.stdin.buffer.read()
os.kill(os.getpid(), signal.SIGSEGV)
