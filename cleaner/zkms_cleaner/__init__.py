"""The cleaner: one of all clients and daemons is elected to remove what dead subscribers have left behind.

election   who leads, and the check that every destructive transaction begins with
sweep      one pass: finds what is orphaned, condemns it, removes it
cleaner    the thread that stands for election and sweeps while it leads
daemon     zkms-cleaner: the same as a process, with metrics and health
"""

from zkms_cleaner.cleaner import Cleaner
from zkms_cleaner.election import Election, Lead
from zkms_cleaner.sweep import Finding, Sweeper

__all__ = ["Cleaner", "Election", "Finding", "Lead", "Sweeper"]
