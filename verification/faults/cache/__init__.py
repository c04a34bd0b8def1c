"""Caches under test: processes that read and write a shared database through them, and what each of them saw.

run   the processes, by hand or in a trial        worker, aio_worker   one of them, on threads or on asyncio
history   what they wrote down, and whether that was allowed
"""
