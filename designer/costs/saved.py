"""What the actions of one subsequence keep, and need for a while, in bytes on one GPU."""

from __future__ import annotations

from dataclasses import dataclass

from contraflow.designer.format.model import ModelShape
from contraflow.designer.format.schedule import Layout

from .training import Training

PRECISE = 4
"""Bytes of an element at least of what is added up over many tokens, of log-sum-exps and log-likelihoods: float32."""

TARGET = 9
"""Bytes that the loss keeps of a token: the place of its target, and whether it counts."""

PART = 448
"""Keys whose gradients the engine's attention makes at once."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The tokens [start, stop) of a microbatch of `whole`, whose last subsequence has `past` before it."""

    start: int
    stop: int
    whole: int
    past: int

    @classmethod
    def all_of(cls, layout: Layout, microbatch: int) -> list[Piece]:
        """The subsequences of a microbatch."""
        whole = layout.sequences[microbatch]
        past = whole - layout.splits[microbatch][-1]
        return [cls(start, stop, whole, past) for start, stop in layout.borders(microbatch)]


@dataclass(frozen=True, slots=True)
class Row:
    """The bytes of one slot, named as in Footprint; the last three are its `extra` of F, B and I."""

    message: float
    activations: float
    logits: float
    deferred: float
    key_values: float
    owed: float
    forward: float
    backward: float
    backward_input: float


@dataclass(frozen=True, slots=True)
class Saved:
    """Bytes of one token of one sequence, in a layer or at the model's end.

    Tensor parallelism divides heads, feed-forward and vocabulary, and with sequence parallelism what stands between.
    """

    training: Training
    hidden: float
    """Hidden states; queries, and what attention gives, are as large."""
    ffn: float
    keys: float
    """Keys and values."""
    owed: float
    """Gradients of keys and values, added up over later subsequences."""
    norm: float
    """What one norm keeps of its statistics."""
    sums: float
    """Attention's log-sum-exps."""
    logits: float
    likelihoods: float
    saved_ffn: int
    """How many tensors of `ffn` autograd keeps. SwiGLU: gate, its silu, up, the product. GELU: up, its gelu."""
    kept_ffn: int
    """How many I leaves for W: what goes into down, and the gradients of what gate and up made."""
    position: float
    """What the embedding of positions keeps."""
    gathered: float
    """What tensor parallelism gathers of a whole sequence while a product needs it."""

    @classmethod
    def of(cls, shape: ModelShape, training: Training) -> Saved:
        """The terms of a model trained so."""
        element, parts = training.bytes.activation, training.tensor_parallel
        precise, gated = max(element, PRECISE), shape.family == "llama"
        return cls(
            training,
            hidden=element * shape.hidden / parts,
            ffn=element * shape.ffn / parts,
            keys=2 * element * shape.kv_hidden / parts,
            owed=2 * precise * shape.kv_hidden / parts,
            # RMSNorm: the inverse root of the mean square. LayerNorm: the mean, and the inverse deviation.
            norm=precise * (1 if gated else 2) / parts,
            sums=precise * shape.heads / parts,
            logits=element * shape.vocabulary / parts,
            likelihoods=precise * shape.vocabulary / parts,
            saved_ffn=4 if gated else 2,
            kept_ffn=3 if gated else 2,
            position=0 if gated else 8,
            gathered=element * shape.hidden * (1 - 1 / parts),
        )

    @property
    def layer(self) -> float:
        """What autograd keeps of a layer beside keys and values.

        Inputs and outputs of both norms, each output once, whatever reads it; the queries; attention's result, which
        is what its output projection keeps too; the feed-forward's.
        """
        return 6 * self.hidden + self.sums + 2 * self.norm + self.saved_ffn * self.ffn

    @property
    def kept(self) -> float:
        """What I leaves of a layer: of every product its input and the gradient of its output.

        Inputs: both norms' outputs, and attention's. Gradients: of the queries, keys and values; of what attention's
        output projection and down made, which for the stage's last layer is the gradient that I took.
        """
        return 6 * self.hidden + self.keys + self.kept_ffn * self.ffn

    def row(self, piece: Piece, layers: int, first: bool, last: bool) -> Row:
        """The bytes of one slot in a stage of so many layers."""
        batch = self.training.batch_size
        tokens = (piece.stop - piece.start) * batch
        hidden = self.hidden * tokens
        layer = hidden if self.training.checkpointing else self.layer * tokens
        activations = layers * layer
        if last:
            activations += (2 * self.hidden + self.norm) * tokens
        elif not layers and not first:
            activations += hidden
        if first:
            activations += self.position * (piece.stop - piece.start)
        # Without a cut keys and values stay as the projections made them; else a buffer is made for all tokens.
        key_values = layers * self.keys * batch * piece.whole if piece.start == 0 else 0.0
        # What the last subsequence owes to all before it is where the others add theirs.
        owed = layers * self.owed * batch * piece.past
        return Row(
            message=hidden,
            activations=activations,
            logits=(self.likelihoods + TARGET) * tokens if last else 0.0,
            deferred=(layers * self.kept + (self.hidden + self.logits) * last) * tokens,
            key_values=key_values,
            owed=owed * ((piece.stop == piece.whole) - (piece.start == 0)),
            forward=self._forward(piece, layers, first, last, activations + key_values),
            backward=self._backward(piece, layers, last, deferring=False),
            backward_input=self._backward(piece, layers, last, deferring=True),
        )

    def _forward(self, piece: Piece, layers: int, first: bool, last: bool, left: float) -> float:
        """F has most at its end: in the loss, or else when the last layer adds down's result to the hidden states."""
        tokens = (piece.stop - piece.start) * self.training.batch_size
        hidden = self.hidden * tokens
        # Embeddings of ids and of positions, and their sum; else the stage's input was there before, and without
        # layers is passed on.
        most = 3 * hidden if first and self.position else hidden
        left += self.gathered * tokens - (0.0 if first else hidden)
        if layers:
            again = (self.layer - self.hidden) * tokens if self.training.checkpointing else 0.0
            most = max(most, left + again + (0.0 if last else 2 * hidden))
        if last:
            most = max(most, left + (self.likelihoods + TARGET + self._loss) * tokens)
        return most

    @property
    def _loss(self) -> float:
        """The loss: the logits, and where they are less precise than the log-likelihoods, a copy that is not."""
        return self.logits + (self.likelihoods if self.likelihoods > self.logits else 0.0)

    def _backward(self, piece: Piece, layers: int, last: bool, deferring: bool) -> float:
        """B, or I where it is `deferring`: the highest of all layers' highest points, from the last layer back."""
        batch = self.training.batch_size
        tokens = (piece.stop - piece.start) * batch
        level, highest = 0.0, 0.0
        # The gradient that a B took stays at hand to its end; an I keeps it for its W.
        taken = 0.0 if last or deferring else self.hidden * tokens
        if last:
            # The gradient of the logits stands where the log-likelihoods were; the head makes that of its input.
            rounded = self.logits if self.likelihoods > self.logits else 0.0
            highest = max(self.hidden, rounded) * tokens
            kept = self.hidden + self.logits if deferring else 0.0
            level = (kept - self.hidden - self.norm - self.likelihoods - TARGET) * tokens
        # From layer to layer, each with the gradient of its output at hand, then with that of its input.
        change = -(self.hidden if self.training.checkpointing else self.layer) * tokens
        if deferring:
            change += self.kept * tokens
        if piece.stop == piece.whole:
            change += self.owed * piece.past * batch
        if piece.start == 0:
            change -= (self.keys * piece.whole + self.owed * piece.past) * batch
        if layers:
            within = self._within(piece, deferring) + self.gathered * tokens
            highest = max(highest, level + within)
            if layers > 1:
                highest = max(highest, level + (layers - 1) * change + taken + within)
        return max(highest, level + layers * change + taken)

    def _within(self, piece: Piece, deferring: bool) -> float:
        """The most that the backward of one layer has beyond what was there when it began."""
        tokens = (piece.stop - piece.start) * self.training.batch_size
        again = (self.layer - self.hidden) * tokens if self.training.checkpointing else 0.0
        ffn = self.ffn * tokens
        # SwiGLU: the gradients of the product and of both its factors, and, unless it is kept, the product is gone.
        # GELU: the gradients of its output and its input, and, unless it is kept, the output is gone.
        gated = self.saved_ffn == 4
        widest = (3 if gated else 2) * ffn - (0.0 if deferring else ffn)
        # Then attention, the feed-forward's tensors gone or kept.
        left = (self.kept_ffn if deferring else 0) - self.saved_ffn
        attention = left * ffn + self._attention(piece) + (self.hidden * tokens if deferring else 0.0)
        return again + max(widest, attention)

    def _attention(self, piece: Piece) -> float:
        """Gradients of the queries, and of all keys and values so far, while parts of them are made and added up."""
        batch = self.training.batch_size
        length = piece.stop - piece.start
        own = (self.hidden + self.keys) * length
        if not piece.start:
            # The second half of the queries with the first half of the keys.
            parts = (self.hidden + self.keys) * length / 2 + (
                self.hidden * length / 2 if length > 2 * PART else 0.0
            )
        else:
            parts = self.hidden * length + self.keys * piece.start
            if piece.start > PART:
                parts += self.hidden * length + self.keys * PART
        rounded = self.owed * piece.start if self.owed > self.keys and piece.stop == piece.whole else 0.0
        return batch * (own + parts + rounded)
