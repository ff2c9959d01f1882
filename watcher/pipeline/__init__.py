"""Pipeline from provider to response: fetch all windows, detect suspect metrics, store and publish the snapshots.

It imports the packages of all these stages.
"""
