"""The reference agent: an instrument whose own account of a call is the truth."""
