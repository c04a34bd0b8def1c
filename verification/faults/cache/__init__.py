"""Verifies caches: processes read and write a shared database through them, and every read is checked.

run   the processes, by hand or in a trial        worker, aio_worker   one of them, on threads or on asyncio
history   what they wrote down, and whether that was allowed
"""
