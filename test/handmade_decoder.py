"""Small decoders with KV caches, as exporters make them, and their one-device runs."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY = 48
CONTEXT = 64


class _Graph:
    def __init__(self, seed, dtype):
        self.nodes, self.weights, self.dtype = [], [], dtype
        self.random = np.random.default_rng(seed)

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = outputs if isinstance(outputs, list) else [f"v{len(self.nodes)}"]
        node = helper.make_node(kind, inputs, names, f"{kind}_{len(self.nodes)}", **attributes)
        self.nodes.append(node)
        return names[0] if len(names) == 1 else names

    def ints(self, *values):
        return self._stored(np.array(values, np.int64))

    def scalar(self, value, dtype):
        return self._stored(np.array(value, dtype))

    def weight(self, *shape):
        return self._stored(self.random.normal(0, shape[0] ** -0.5, shape).astype(self.dtype))

    def _stored(self, array):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name


def write_decoder(
    path,
    *,
    layers=2,
    heads=4,
    shared=4,
    size=8,
    in_place=False,
    by_cache=False,
    seed=0,
    vocabulary=VOCABULARY,
    dtype=np.float32,
):
    """Write a decoder of ``heads`` of ``size``; ``in_place``: by GroupQueryAttention.

    ``by_cache``: it counts the tokens of a sequence by the size of its cache, and has no mask.
    """
    g, width, ends = _Graph(seed, dtype), heads * size, []
    x = g.op("Gather", g.weight(vocabulary, width), "input_ids")
    if in_place:
        mask = _cache_lengths(g) if by_cache else _lengths(g)
    else:
        x = g.op("Add", x, g.op("Gather", g.weight(CONTEXT, width), "position_ids"))
        mask = _mask(g)
    for layer in range(layers):
        past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        present = [f"present.{layer}.{part}" for part in ("key", "value")]
        sizes = (width, shared * size, shared * size)
        q, k, v = (g.op("MatMul", x, g.weight(width, n)) for n in sizes)
        if in_place:
            names = ["", *present]
            names[0] = f"attention{layer}"
            attributes = {"num_heads": heads, "kv_num_heads": shared, "domain": "com.microsoft"}
            y = g.op("GroupQueryAttention", q, k, v, *past, *mask, outputs=names, **attributes)[0]
        else:
            y = _attention(g, q, k, v, past, present, mask, heads, size)
        x = g.op("Add", x, g.op("MatMul", y, g.weight(width, width)))
        inner = g.op("Tanh", g.op("MatMul", x, g.weight(width, 2 * width)))
        x = g.op("Add", x, g.op("MatMul", inner, g.weight(2 * width, width)))
        ends += zip(past, present, strict=True)
    g.op("MatMul", x, g.weight(width, vocabulary), outputs=["logits"])
    sizes = shared, size, vocabulary
    _save(path, g, ends, sizes, positions=not in_place, mask=not by_cache)
    return path


def _lengths(g):
    lengths = g.op("Sub", g.op("ReduceSum", "attention_mask", g.ints(1), keepdims=0), g.ints(1))
    total = g.op("Gather", g.op("Shape", "attention_mask"), g.scalar(1, np.int64))
    return [g.op("Cast", name, to=TensorProto.INT32) for name in (lengths, total)]


def _cache_lengths(g):
    past, new = (
        g.op("Gather", g.op("Shape", name), g.scalar(dim, np.int64))
        for name, dim in (("past_key_values.0.key", 2), ("input_ids", 1))
    )
    total = g.op("Add", past, new)
    batch = g.op("Gather", g.op("Shape", "input_ids"), g.ints(0))
    lengths = g.op("Expand", g.op("Sub", total, g.scalar(1, np.int64)), batch)
    return [g.op("Cast", name, to=TensorProto.INT32) for name in (lengths, total)]


def _mask(g):
    """What is added to scores [b, h, s, t]: a row sees tokens up to its own that are no padding."""
    zero, one = (g.scalar(n, np.int64) for n in (0, 1))
    total = g.op("Gather", g.op("Shape", "attention_mask"), one)
    new = g.op("Gather", g.op("Shape", "input_ids"), one)
    keys = g.op("Range", zero, total, one)
    rows = g.op("Range", g.op("Sub", total, new), total, one)
    seen = g.op("LessOrEqual", keys, g.op("Unsqueeze", rows, g.ints(1)))
    there = g.op("Cast", "attention_mask", to=TensorProto.BOOL)
    both = g.op("And", seen, g.op("Unsqueeze", there, g.ints(1, 2)))
    return g.op("Where", both, g.scalar(0, g.dtype), g.scalar(-6e4, g.dtype))


def _attention(g, q, k, v, past, present, mask, heads, size):
    q, k, v = (
        g.op("Transpose", g.op("Reshape", x, g.ints(0, 0, heads, size)), perm=[0, 2, 1, 3])
        for x in (q, k, v)
    )
    k = g.op("Concat", past[0], k, axis=2, outputs=[present[0]])
    v = g.op("Concat", past[1], v, axis=2, outputs=[present[1]])
    scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = g.op("Softmax", g.op("Add", scores, mask), axis=-1)
    y = g.op("Transpose", g.op("MatMul", scores, v), perm=[0, 2, 1, 3])
    return g.op("Reshape", y, g.ints(0, 0, heads * size))


def _save(path, g, ends, sizes, *, positions, mask):
    shared, size, vocabulary = sizes
    ids = ["input_ids", "position_ids"] if positions else ["input_ids"]
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(g.dtype))
    value = helper.make_tensor_value_info
    given = [value(name, TensorProto.INT64, ["batch", "sequence"]) for name in ids]
    if mask:
        given.append(value("attention_mask", TensorProto.INT64, ["batch", "total"]))
    cache = ["batch", shared, "past", size]
    given += [value(past, kind, cache) for past, _ in ends]
    grown = ["batch", shared, "total", size]
    made = [value("logits", kind, ["batch", "sequence", vocabulary])]
    made += [value(present, kind, grown) for _, present in ends]
    graph = helper.make_graph(g.nodes, "decoder", given, made, g.weights)
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)


def greedy(path, prompt, count):
    """Return the ``count`` likeliest tokens after a ``prompt``, of one device and no cache kept."""
    return continued(path, prompt, count, lambda scores, _: int(scores.argmax()))


def continued(path, prompt, count, choose):
    """Return ``count`` tokens that ``choose`` picks by the scores and the tokens so far."""
    score, tokens = scorer(path), list(prompt)
    for _ in range(count):
        tokens.append(choose(score(tokens)[-1], tokens))
    return tokens[len(prompt) :]


def scorer(path):
    """Return a function from tokens to the scores after each, [tokens, vocabulary]: one device."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])

    def score(tokens):
        feeds = {"input_ids": np.array([tokens], np.int64)}
        for tensor in session.get_inputs():
            if tensor.name == "attention_mask":
                feeds[tensor.name] = np.ones_like(feeds["input_ids"])
            elif tensor.name == "position_ids":
                feeds[tensor.name] = np.arange(len(tokens))[None]
            elif tensor.name.startswith("past"):
                _, shared, _, size = tensor.shape
                types = {"tensor(int8)": np.int8, "tensor(float16)": np.float16}
                dtype = types.get(tensor.type, np.float32)
                feeds[tensor.name] = np.zeros((1, shared, 0, size), dtype)
        return session.run(["logits"], feeds)[0][0]

    return score


def log_probabilities(path, tokens):
    """Return the logarithms of probabilities after each token, [tokens, vocabulary]."""
    exact = scorer(path)(list(tokens)).astype(np.float64)
    return exact - np.log(np.exp(exact).sum(axis=-1, keepdims=True))
