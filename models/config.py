"""Settings of the policies, one class a network; imports nothing heavy.

So ``--help`` shows them without starting JAX.
"""

import dataclasses
import math
from typing import Literal, TypeAlias


@dataclasses.dataclass(frozen=True, kw_only=True)
class PolicyConfig:
    """How a network's outputs become actions; the base of every policy's config."""

    action_scale: Literal["bounds", "none"] = "bounds"
    """Real actions: tanh mapped onto the space's bounds, or passed on in [-1, 1]."""
    sample_actions: bool = False
    """Discrete actions: draw from the logits' softmax instead of the largest one."""
    action_bins: int | None = None
    """Real actions: each number is one of so many evenly spaced ones, from bound to
    bound, that of the largest logit; tanh of one output if not given."""

    def __post_init__(self):
        """Checks the fields; subclasses extend it."""
        require(
            self.action_bins is None or self.action_bins >= 2,
            "action_bins",
            self.action_bins,
            "it must be at least 2, the bounds themselves; 11 has the middle, too",
        )
        require(
            self.action_scale in ("bounds", "none"),
            "action_scale",
            self.action_scale,
            'choose "bounds" or "none"',
        )


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
        if self.target_return is not None:
            _require_target(self.target_return)
        require(
            self.target_return is not None or self.reward_scale == 0.001,
            "reward_scale",
            self.reward_scale,
            "nothing reads it without a target_return; add one",
        )
        _require_scale(self.reward_scale)


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
        """Checks the fields."""
        super().__post_init__()
        require(
            all(size >= 1 for size in self.hidden_sizes),
            "hidden_sizes",
            self.hidden_sizes,
            "every width must be at least 1, for example 256 256",
        )
        require(
            0.0 <= self.head_scale < math.inf,
            "head_scale",
            self.head_scale,
            "it must be at least 0 and finite; 1 begins as PyTorch does",
        )
        require(
            self.activation in ("tanh", "relu"),
            "activation",
            self.activation,
            'choose "tanh" or "relu"',
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearConfig(MLPConfig):
    """A linear policy that begins at 0 (``linear``), as those of ARS and PGPE."""

    hidden_sizes: tuple[int, ...] = ()
    """None; choose mlp for hidden layers."""
    head_scale: float = 0.0
    """Factor on the initial weights; with 0 actions begin in the middle of their
    bounds."""

    def __post_init__(self):
        """Checks the fields."""
        super().__post_init__()
        require(
            not self.hidden_sizes,
            "hidden_sizes",
            self.hidden_sizes,
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
        """Checks the fields."""
        super().__post_init__()
        require(
            self.target_return is None,
            "target_return",
            self.target_return,
            "a rating of choices reads what describes them alone; choose --policy mlp",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class LSTMConfig(CommandedConfig):
    """A recurrent network (``lstm``)."""

    width: int = 128
    """Size of the cell's state, in units."""

    def __post_init__(self):
        """Checks the fields."""
        super().__post_init__()
        require(self.width >= 1, "width", self.width, "it must be at least 1")


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
    1709.07871): the token that chooses the action then hears of it directly."""
    timestep_scale: float = 1.0
    """Standard deviation of the timestep table's initial entries."""
    head_scale: float = 1.0
    """Factor on the head's initial weights; with 0 actions begin in the middle of
    their bounds."""

    def __post_init__(self):
        """Checks the fields."""
        super().__post_init__()
        require(
            self.attention in ("window", "cache"),
            "attention",
            self.attention,
            'choose "window" or "cache"',
        )
        sizes = ("context_length", "width", "num_layers", "num_heads", "max_timestep")
        for name in sizes:
            value = getattr(self, name)
            require(value >= 1, name, value, "it must be at least 1")
        # Layers are unrolled: a thousand would already compile for minutes.
        require(
            self.num_layers <= 1000,
            "num_layers",
            self.num_layers,
            "it must be at most 1000",
        )
        require(
            self.width % self.num_heads == 0,
            "num_heads",
            self.num_heads,
            f"it must divide width={self.width}",
        )
        require(
            self.activation in ("relu", "gelu"),
            "activation",
            self.activation,
            'choose "relu" or "gelu"',
        )
        require(
            0.0 <= self.head_scale < math.inf,
            "head_scale",
            self.head_scale,
            "it must be at least 0 and finite; 1 begins as PyTorch does",
        )
        require(
            0.0 <= self.timestep_scale < math.inf,
            "timestep_scale",
            self.timestep_scale,
            "it must be at least 0 and finite; 1 begins as PyTorch does",
        )
        _require_target(self.target_return)
        _require_scale(self.reward_scale)


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
    activation: str = "gelu"  # pyright: ignore[reportIncompatibleVariableOverride]
    """Nonlinearity of the blocks' feed-forward part: gelu or relu."""
    target_return: float = 8000.0
    """The episode return asked for, in the game's points."""
    reward_scale: float = 1.0
    """Factor from rewards and target_return to the return-to-go the network reads: the
    reference networks read the game's points as they are."""
    max_timestep: int = 10_001
    """Length of the timestep table, in agent steps; later ones share a row."""

    def __post_init__(self):
        """Checks the fields."""
        super().__post_init__()
        require(
            self.context_length <= self.max_timestep,
            "context_length",
            self.context_length,
            f"it must not exceed max_timestep={self.max_timestep}, the length of the "
            "timestep table",
        )
        require(
            not self.film,
            "film",
            self.film,
            "networks of images have none; leave it out",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class CNNConfig(PolicyConfig):
    """Salimans' convolutional network (``cnn``)."""

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
        """Checks the fields."""
        super().__post_init__()
        require(
            self.hidden_size >= 1,
            "hidden_size",
            self.hidden_size,
            "it must be at least 1; 256 is usual",
        )
        require(
            self.normalization in ("virtual-batch", "none"),
            "normalization",
            self.normalization,
            "choose virtual-batch or none",
        )
        require(
            self.reference_size >= 2,
            "reference_size",
            self.reference_size,
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


def _require_target(value: float) -> None:
    require(
        math.isfinite(value),
        "target_return",
        value,
        "it must be finite; ask for a high but reachable return",
    )


def _require_scale(value: float) -> None:
    require(
        math.isfinite(value) and value > 0.0,
        "reward_scale",
        value,
        "it must be positive, for example 0.001 for returns in the thousands",
    )


def require(condition: bool, name: str, value: object, remedy: str) -> None:
    """Raises the ``ValueError`` of a config field unless ``condition`` holds."""
    if not condition:
        raise ValueError(f"policy.{name}={value!r} is not possible: {remedy}")
