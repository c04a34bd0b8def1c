"""Commands for whoever runs it: server, doctor, backup, access, quota."""
