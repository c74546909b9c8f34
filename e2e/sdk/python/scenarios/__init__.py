"""Scenarios of the Python SDK. Each is a coroutine that takes a Stage and gives a record."""
