"""What every implementation of a contract must do: classes of tests to inherit from."""
