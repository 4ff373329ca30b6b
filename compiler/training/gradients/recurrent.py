"""Gradients of LSTM, GRU and RNN, unrolled over time."""
