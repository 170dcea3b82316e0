"""GCDN by the sizes of its release and by the formulas of its paper."""

import numpy as np
import pytest
import torch

from musigma.networks import create, num_params
from musigma.networks.denoising.gcdn import GraphConv, similar_pixels


def test_parameters_by_hand():
    # diegovalsesia/gcdn, Code/gcdn/net.py, without its 17 batch norms; tables of later work print
    # 5.99M (from memory).
    def graph(inner, outer, *, stride_in, stride_out):
        label = inner * inner + inner
        sides = inner * 11 * (stride_in + stride_out) + 11 * (inner + outer)
        return label + sides + (inner * 11 + 11) + 9 * inner * outer + outer

    start = sum(k * k * (44 + 2 * 44 * 44) for k in (3, 5, 7))
    start += 3 * graph(44, 44, stride_in=44, stride_out=44)
    body = 5 * (9 * 132 * 132 + 132 + 3 * graph(132, 132, stride_in=44, stride_out=44)) + 2 * 4
    total = start + body + graph(132, 1, stride_in=44, stride_out=1)
    assert num_params(create("gcdn", scale=1)) == total
    assert total / 1e6 == pytest.approx(5.99, abs=0.005)


def test_similar_pixels_by_hand():
    height, width, window, count = 9, 8, 5, 3
    features = torch.rand(2, 4, height, width)
    actual = similar_pixels(features, count=count, window=window)
    values = features.double().numpy()
    for image, y, x in np.ndindex(2, height, width):
        top, left = np.clip(y - 2, 0, height - window), np.clip(x - 2, 0, width - window)
        far = {}
        for v, u in np.ndindex(window, window):
            v, u = v + top, u + left
            if max(abs(v - y), abs(u - x)) > 1:
                difference = values[image, :, v, u] - values[image, :, y, x]
                far[v * width + u] = (difference**2).sum()
        nearest = sorted(far, key=far.get)[:count]
        assert set(actual[image, y * width + x].tolist()) == set(nearest)


def test_graph_convolution_by_the_formula():
    torch.manual_seed(0)
    layer = GraphConv(6, 6, rank=2, num_parts=3).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    features = torch.randn(1, 6, 8, 8, dtype=torch.float64)
    neighbors = similar_pixels(features, count=3, window=7)
    pixels = features.flatten(2)[0].T
    total = torch.zeros(64, 6, dtype=torch.float64)
    for i in range(64):
        for j in neighbors[0, i].tolist():
            difference = pixels[j] - pixels[i]
            label = torch.nn.functional.leaky_relu(layer.label(difference), 0.2)

            def side(edge, label=label):
                """Rows of rank, made part by part from the label moved on by a part's size."""
                parts = [(edge.weight @ label.roll(2 * part)).view(2, 2) for part in range(3)]
                return torch.cat(parts, dim=1) + edge.bias

            matrix = side(layer.left).T @ torch.diag(layer.strength(label)) @ side(layer.right)
            total[i] += matrix @ pixels[j] * torch.exp(-difference.square().sum() / 10) / 3
    expected = (layer.local(features) + total.T.view(1, 6, 8, 8)) / 2 + layer.bias
    torch.testing.assert_close(layer(features, neighbors), expected)


def test_few_pixels_at_a_time_give_what_all_give(monkeypatch):
    layer = GraphConv(6, 3, rank=2, num_parts=3).double()
    features = torch.randn(2, 6, 9, 11, dtype=torch.float64)
    neighbors = similar_pixels(features, count=4, window=7)
    whole = layer(features, neighbors)
    monkeypatch.setattr("musigma.networks.denoising.gcdn.MANY_VALUES", 2 * 2 * 6 * 4 * 2 * 7)
    torch.testing.assert_close(layer(features, neighbors), whole)
