"""Commands that show what is there: topics, clients, queues, groups, `top`."""
