"""What runs on the machines of a fleet, sent there as text (`sending.py`): Python 3.9 and its library alone."""
