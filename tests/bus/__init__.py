"""The bus as a whole: requests and replies, transactions, forks."""
