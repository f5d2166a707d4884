"""Readers and writers of other libraries' formats, and their keys, one by one."""
