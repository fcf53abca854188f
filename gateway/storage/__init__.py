"""Exports on a schedule: each period's file made, and put once into a folder or a bucket."""
