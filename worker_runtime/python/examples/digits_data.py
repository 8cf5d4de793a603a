"""The handwritten digits that the examples train on: (images in [0, 1], labels) of digits.csv."""
import csv

import torch


def load_digits(path):
    with open(path, newline="") as file:
        rows = torch.tensor([[float(value) for value in row] for row in csv.reader(file)])
    return torch.utils.data.TensorDataset(rows[:, :-1] / 16, rows[:, -1].long())
