"""Families: a folder with one plan per number of devices."""
