"""Settings of the policies, one class a network; imports nothing heavy.

So ``--help`` shows them without starting JAX.
"""

import dataclasses
import math
import typing
from typing import Literal, TypeAlias

_AT_LEAST_1 = "it must be at least 1"


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """How a network's outputs become actions; the base of every policy's config."""

    action_scale: Literal["bounds", "none"] = "bounds"
    """Real actions: tanh mapped onto the space's bounds, or passed on in [-1, 1]."""
    sample_actions: bool = False
    """Discrete actions: draw from the logits' softmax instead of the largest one."""
    action_bins: int | None = None
    """Real actions: each number is one of this many, evenly spaced between its bounds,
    chosen by the largest logit; if not given, it is the tanh of one output."""

    def __post_init__(self):
        """Checks the fields; subclasses extend it."""
        self.require(
            self.action_bins is None or self.action_bins >= 2,
            "action_bins",
            "it must be at least 2, the bounds themselves; 11 has the middle, too",
        )
        for name, hint in typing.get_type_hints(type(self)).items():
            if typing.get_origin(hint) is Literal:
                choices = typing.get_args(hint)
                known = getattr(self, name) in choices
                self.require(known, name, f"choose {' or '.join(choices)}")

    def require(self, holds: bool, name: str, remedy: str) -> None:
        """Raises the ``ValueError`` of a field unless ``holds``."""
        if not holds:
            value = getattr(self, name)
            raise ValueError(f"policy.{name}={value!r} is not possible: {remedy}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CommandedConfig(PolicyConfig):
    """Of networks that read the return asked for only if told to."""

    target_return: float | None = None
    """The episode return asked for, in the environment's reward unit: the network reads
    what remains of it as one number more of its observation; none if not given."""
    reward_scale: float = 0.001
    """Factor from rewards and target_return to the number that the network reads."""

    def __post_init__(self):
        """Checks the fields; subclasses extend it."""
        super().__post_init__()
        self.require(
            self.target_return is not None or self.reward_scale == 0.001,
            "reward_scale",
            "nothing reads it without a target_return; add one",
        )
        _check_command(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MLPConfig(CommandedConfig):
    """A feed-forward network (``mlp``)."""

    hidden_sizes: tuple[int, ...] = (256, 256)
    """Width of each hidden layer, in units; empty for a linear policy."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Nonlinearity of the hidden layers."""
    head_scale: float = 1.0
    """Factor on the head's initial weights; with 0 actions begin in the middle of
    their bounds."""

    def __post_init__(self):
        super().__post_init__()
        self.require(
            all(size >= 1 for size in self.hidden_sizes),
            "hidden_sizes",
            "every width must be at least 1, for example 256 256",
        )
        _check_factor(self, "head_scale")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearConfig(MLPConfig):
    """A linear policy that begins at 0 (``linear``), as those of ARS and PGPE."""

    hidden_sizes: tuple[int, ...] = ()
    """None; choose mlp for hidden layers."""
    head_scale: float = 0.0
    """Factor on the initial weights; with 0 actions begin in the middle of their
    bounds."""

    def __post_init__(self):
        super().__post_init__()
        self.require(
            not self.hidden_sizes,
            "hidden_sizes",
            "a linear policy has none; choose --policy mlp",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class AfterstateConfig(MLPConfig):
    """A network that rates what each choice leads to (``afterstate``).

    It reads observations that describe every choice by equally many numbers, one choice
    after the other, and takes the choice with the highest rating.
    """

    hidden_sizes: tuple[int, ...] = ()
    """Width of each hidden layer, in units; a linear rating without any."""
    head_scale: float = 0.0
    """Factor on the head's initial weights; with 0 all choices begin alike."""

    def __post_init__(self):
        super().__post_init__()
        self.require(
            self.target_return is None,
            "target_return",
            "a rating of choices reads what describes them alone; choose --policy mlp",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LSTMConfig(CommandedConfig):
    """A recurrent network (``lstm``)."""

    width: int = 128
    """Size of the cell's state, in units."""

    def __post_init__(self):
        super().__post_init__()
        self.require(self.width >= 1, "width", _AT_LEAST_1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DecisionTransformerConfig(PolicyConfig):
    """A Decision Transformer (``decision-transformer``); defaults for Humanoid."""

    attention: Literal["window", "cache"] = "window"
    """How the past is read: "window" encodes the last steps again at every step, as in
    the paper; "cache" keeps their keys and values and encodes new tokens only."""
    context_length: int = 20
    """What the transformer sees, in environment steps (three tokens each)."""
    width: int = 128
    """Size of a token's embedding, in units."""
    num_layers: int = 3
    """Number of transformer blocks."""
    num_heads: int = 1
    """Attention heads per block; divides width."""
    activation: Literal["relu", "gelu"] = "relu"
    """Nonlinearity of the blocks' feed-forward part."""
    target_return: float = 7000.0
    """The episode return asked for, in the environment's reward unit."""
    reward_scale: float = 0.001
    """Factor from rewards and target_return to the return-to-go the network reads."""
    max_timestep: int = 1000
    """Length of the timestep table, in environment steps; later ones share a row."""
    film: bool = False
    """Let the return-to-go also scale and shift each state's token (FiLM, arXiv
    1709.07871): the token that chooses the action then reads it directly."""
    timestep_scale: float = 1.0
    """Standard deviation of the timestep table's initial entries."""
    head_scale: float = 1.0
    """Factor on the head's initial weights; with 0 actions begin in the middle of
    their bounds."""

    def __post_init__(self):
        super().__post_init__()
        sizes = ("context_length", "width", "num_layers", "num_heads", "max_timestep")
        for name in sizes:
            self.require(getattr(self, name) >= 1, name, _AT_LEAST_1)
        # Layers are unrolled: a thousand would already compile for minutes.
        self.require(self.num_layers <= 1000, "num_layers", "it must be at most 1000")
        self.require(
            self.width % self.num_heads == 0,
            "num_heads",
            f"it must divide width={self.width}",
        )
        _check_factor(self, "head_scale")
        _check_factor(self, "timestep_scale")
        _check_command(self)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageDecisionTransformerConfig(DecisionTransformerConfig):
    """A Decision Transformer on images (``image-decision-transformer``)."""

    sample_actions: bool = True
    """Draw actions from the logits' softmax instead of the largest one."""
    context_length: int = 30
    """What the transformer sees, in agent steps (three tokens each)."""
    num_layers: int = 6
    """Number of transformer blocks."""
    num_heads: int = 8
    """Attention heads per block; divides width."""
    activation: Literal["relu", "gelu"] = "gelu"
    """Nonlinearity of the blocks' feed-forward part."""
    target_return: float = 8000.0
    """The episode return asked for, in the game's points."""
    reward_scale: float = 1.0
    """Factor from rewards and target_return to the return-to-go the network reads: the
    reference networks read the game's points as they are."""
    max_timestep: int = 10_001
    """Length of the timestep table, in agent steps; later ones share a row."""

    def __post_init__(self):
        super().__post_init__()
        self.require(
            self.context_length <= self.max_timestep,
            "context_length",
            f"it must not exceed max_timestep={self.max_timestep}, the length of the "
            "timestep table",
        )
        self.require(
            not self.film, "film", "networks of images have none; leave it out"
        )
        self.require(
            self.timestep_scale == 1.0,
            "timestep_scale",
            "a network of images begins with a table of zeros; leave it out",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CNNConfig(PolicyConfig):
    """Salimans' convolutional network (``cnn``)."""

    features: tuple[int, ...] = (16, 32)
    """Features of each convolution, one or two; kernels and strides follow from the
    image's size."""
    hidden_size: int = 256
    """Width of the dense layer, in units."""
    normalization: Literal["virtual-batch", "none"] = "virtual-batch"
    """Normalise each layer by mean and variance that a fixed reference batch has under
    the member's own weights (Salimans et al.), or not at all."""
    reference_size: int = 128
    """Observations in the reference batch, from random play before the first
    generation (eight environments, one observation in 16 steps); read by normalization
    virtual-batch only."""

    def __post_init__(self):
        super().__post_init__()
        self.require(
            len(self.features) in (1, 2) and min(self.features) >= 1,
            "features",
            "one or two convolutions, each of at least 1, for example 16 32",
        )
        self.require(self.hidden_size >= 1, "hidden_size", _AT_LEAST_1)
        self.require(
            self.reference_size >= 2,
            "reference_size",
            "a variance takes at least 2 observations; 128 is usual",
        )


AnyPolicyConfig: TypeAlias = (
    MLPConfig
    | LinearConfig
    | AfterstateConfig
    | LSTMConfig
    | DecisionTransformerConfig
    | CNNConfig
    | ImageDecisionTransformerConfig
)

IMAGE_POLICIES = (CNNConfig, ImageDecisionTransformerConfig)
"""The configs of policies that observe images; all others observe vectors."""


def _check_factor(config: PolicyConfig, name: str) -> None:
    config.require(
        0.0 <= getattr(config, name) < math.inf,
        name,
        "it must be at least 0 and finite; 1 begins as PyTorch does",
    )


def _check_command(config: CommandedConfig | DecisionTransformerConfig) -> None:
    config.require(
        config.target_return is None or math.isfinite(config.target_return),
        "target_return",
        "it must be finite; ask for a high but reachable return",
    )
    config.require(
        0.0 < config.reward_scale < math.inf,
        "reward_scale",
        "it must be positive, for example 0.001 for returns in the thousands",
    )
