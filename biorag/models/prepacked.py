"""Linear layers with weights in the layout that oneDNN's matrix products read, made once and not at every product."""

from __future__ import annotations

from typing import cast

import torch
from torch import nn
from transformers.activations import GELUActivation

LARGEST = 2**29  # bytes of weights that are kept in a second layout


class PrepackedLinear(nn.Module):
    """A linear layer, and the activation after it; inference reads the copy of its weights, all else the weights."""

    def __init__(self, linear: nn.Linear, activation: nn.Module | None = None) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self._activation = activation
        with torch.inference_mode():
            self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), None)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return `inputs @ weight.T + bias`, activated; inputs of shape (…, in), outputs (…, out)."""
        if torch.is_inference_mode_enabled():
            name, variant = ("gelu", "none") if self._activation else ("none", "")
            fused: torch.Tensor = torch.ops.mkldnn._linear_pointwise(inputs, self._packed, self.bias, name, [], variant)
            return fused
        outputs = nn.functional.linear(inputs, self.weight, self.bias)
        return cast(torch.Tensor, self._activation(outputs)) if self._activation else outputs


def prepack(model: nn.Module) -> None:
    """Replace the linear layers of a model that is used for inference alone, where oneDNN computes them."""
    layers = [module for module in model.modules() if type(module) is nn.Linear]
    if not _supported(layers) or sum(layer.weight.nbytes for layer in layers) > LARGEST:
        return
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, PrepackedLinear(child, _fused(parent, name)))


def _supported(layers: list[nn.Linear]) -> bool:
    if not (torch._C._has_mkldnn and hasattr(torch.ops.mkldnn, "_linear_pointwise")):
        return False
    bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    types = (torch.float32, torch.bfloat16) if bf16 else (torch.float32,)
    return all(layer.weight.device.type == "cpu" and layer.weight.dtype in types for layer in layers)


def _fused(parent: nn.Module, name: str) -> nn.Module | None:
    """Return the activation of BERT's intermediate layer, taken out of it: oneDNN applies it to the product."""
    activation = getattr(parent, "intermediate_act_fn", None)
    if name != "dense" or not (isinstance(activation, nn.Module) and isinstance(activation, GELUActivation)):
        return None
    parent.intermediate_act_fn = nn.Identity()
    return activation
