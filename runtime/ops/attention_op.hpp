// Scaled dot-product attention that keeps no scores, and its gradient.
#pragma once

#include "attention_node.hpp"

namespace tensoropt {

// `Attention`: (q, k, v, bias?, lengths?, offset?, row_seeds?, key_seeds?) -> (y, lse?). All are of
// `type`, float32 or bfloat16 on the CPU, float16 or bfloat16 on a device, with sums in float32.
//
// q is [B, Hq, Tq, D], k [B, Hk, Tk, D], v [B, Hk, Tk, Dv]; query head h reads key head
// h / (Hq / Hk). bias is added to the scores, [b, h, t, Tk], each of b, h, t 1 or the full size.
// lengths, int64 [B]: the keys that are read. offset, int64 [1]: the position of the first query.
// Attributes: `scale`, required; `causal`, 1 to read keys up to a query's position; `window`, the
// number of keys before that position that are read; `softcap` c, scores s become
// c * tanh(s / c). 0 disables them.
// row_seeds, int64 [B, Hq, Tq, 1], and key_seeds, int64 [1, 1, 1, Tk], drop weights: with the
// product x of the seeds of a query and a key, their weight is multiplied by `drop_scale` if
// x (x + `drop_mix`) modulo 2^64 is above `drop_threshold`, else by 0.
// y is [B, Hq, Tq, Dv]; lse, float32 [B, Hq, Tq], the logarithms of the sums of exponentials. A
// query without keys has y = 0 and lse = -infinity. Lengths, offset and seeds are in memory of the
// host. A device takes the forms of runtime/support/cudnn_attention.py.
AttentionOp attention_op(Place place, Element type);

// `AttentionGradient`: (dy, q, k, v, y, lse, bias?, lengths?, offset?, row_seeds?, key_seeds?) ->
// (dq, dk, dv, dbias?).
// Attributes as above.
AttentionOp attention_gradient_op(Place place, Element type);

}  // namespace tensoropt
