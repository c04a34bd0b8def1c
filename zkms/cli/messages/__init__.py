"""Commands that send, receive, show and remove messages: one command a file."""
