"""The output layer and the loss as one kernel, or as one loop over chunks of tokens, has them."""

from __future__ import annotations

from distsim.arrays import minimum
from distsim.formulas.loss import loss_chunk_tokens
from distsim.layers.ledger import Context, Operation, Tensor
from distsim.layers.names import UPCAST
from distsim.layers.prediction import trains_head
from distsim.units import FP32_BYTES


def together(ctx: Context, product: Operation, loss: Operation) -> list[Operation]:
    """The rows of the output layer and of the loss; what the two keep stands with the loss, which reads or makes it
    whether the layer's weight trains or not."""
    tokens, words, width, _ = product.shape
    source = next(tensor for tensor in product.saved if not tensor.weight_copy)
    copies = tuple(tensor for tensor in product.saved if tensor.weight_copy)
    if ctx.kernels.loss == "cut":
        kept = source, Tensor("loss.log_sum_exp", tokens, FP32_BYTES, "s b")
        transit = product.transient_backward[1:]
        return [
            product._replace(saved=copies, output=None, bytes_written=0, transient_backward=transit),
            loss._replace(saved=kept, transient_forward=(), transient_backward=(), bytes_read=0, bytes_written=0),
        ]  # fmt: skip
    stated, parts = ctx.kernels.loss_chunk_tokens, ctx.kernels.loss_chunks
    chunk = minimum(tokens, stated) if stated else loss_chunk_tokens(tokens, words, width)
    if parts > 1:
        chunk = tokens / parts
    logits = Tensor("loss.logits", chunk * words, ctx.activation, "s b v/t")
    # of composed kernels: the log-softmax in fp32, its gradient and that of the logits, before they are narrow again
    wide = () if ctx.kernels.loss_kernel else (logits._replace(name=UPCAST, bytes_each=FP32_BYTES),) * 3
    made = source._replace(name="loss.input_gradient", bytes_each=ctx.activation)
    weights = (Tensor("loss.weight_gradient", words * width, ctx.precision.parameter_bytes, "h v/t"),)
    chunks = (chunk, words, width, tokens / chunk)
    if ctx.kernels.loss_chunk_again:
        # a slice's gradient is as large as what it was cut from, that of a chunk's weight as the weight: both are added
        sums = (made, made, *(weights if trains_head(ctx) else ()))
        return [
            product._replace(shape=chunks, saved=copies, output=logits, transient_backward=()),
            loss._replace(saved=(source,), transient_forward=(logits, *wide),
                    transient_backward=(logits, *wide, logits, *sums)),
        ]  # fmt: skip
    return [
        product._replace(shape=chunks, saved=copies, output=logits, transient_backward=()),
        loss._replace(saved=(made,), transient_forward=(logits, *wide, *(weights if trains_head(ctx) else ())),
                transient_backward=()),
    ]  # fmt: skip
