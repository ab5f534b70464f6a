"""Evaluation by many processes, on this machine or on several: the only ray."""
