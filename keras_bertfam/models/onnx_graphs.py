"""Changes to ONNX files that make them faster and compute the same."""

import functools
from collections import defaultdict
from typing import Any

import numpy as np

from keras_bertfam.types import Path

# The first operator set with `LayerNormalization`.
OPSET = 17


@functools.cache
def teach_erfc() -> None:
    """Teach tf2onnx to write TensorFlow's `Erfc`, the heart of GELU, by `Erf`.

    `erfc(-x * sqrt(1/2))` becomes `1 + erf(x / sqrt(2))`. ONNX Runtime recognises that
    as a part of GELU, and computes one operation instead of six.
    """
    from tf2onnx.handler import tf_op
    from tf2onnx.utils import map_onnx_to_numpy_type

    class Erfc:
        @classmethod
        def version_9(cls, graph, node, **kwargs):
            output, dtype = node.output[0], graph.get_dtype(node.input[0])
            kinds = {"shapes": [graph.get_shape(output)], "dtypes": [dtype]}

            def constant(name, value):
                value = np.asarray(value, map_onnx_to_numpy_type(dtype))
                return graph.make_const(f"{node.name}_{name}", value).output[0]

            one, found = constant("one", 1), _negated_product(node.inputs[0])
            if found:
                x, factor = found
                inputs = [x, constant("divisor", 1 / factor)]
                argument = graph.make_node("Div", inputs, **kinds).output
            else:
                argument = node.input
            graph.remove_node(node.name)
            erf = graph.make_node("Erf", argument, **kinds).output[0]
            terms = ("Add", [erf, one]) if found else ("Sub", [one, erf])
            graph.make_node(*terms, outputs=[output], **kinds)

    tf_op("Erfc")(Erfc)


def _negated_product(node):
    """Find the tensor and the number of a product `-tensor * number`, or `None`."""
    if node.type != "Mul":
        return None
    constants = [x for x in node.inputs if x.is_const()]
    negated = [x for x in node.inputs if x.type == "Neg"]
    if len(constants) != 1 or len(negated) != 1:
        return None
    value = constants[0].get_tensor_value(as_list=False)
    return (negated[0].input[0], float(value)) if np.ndim(value) == 0 else None


def fuse_norms(path: Path) -> None:
    """Replace each layer normalisation in a file by a single operation.

    TensorFlow writes thirteen operations for it, and each goes over all states.

    Args:
        path: ONNX file of the operator set `OPSET` or a later one. Files of earlier
            sets stay as they are.
    """
    import onnx

    model = onnx.load(path)
    versions = {one.domain: one.version for one in model.opset_import}
    if versions.get("", 0) < OPSET:
        return
    graph = _Graph(onnx.shape_inference.infer_shapes(model).graph, model.graph)
    for node in model.graph.node:
        if node.op_type == "Sqrt" and (found := _norm(graph, node)):
            last, inputs, epsilon = found
            graph.replace(last, "LayerNormalization", *inputs, epsilon=epsilon)
    graph.drop_unused()
    onnx.save(model, path)


def name_output(path: Path) -> None:
    """Rename the output of a file that has one, `Identity:0` by TensorFlow.

    It becomes `output_0`, as in SavedModels and LiteRT files. Several outputs have the
    names by which the model gives them.

    Args:
        path: ONNX file.
    """
    import onnx

    model = onnx.load(path)
    graph = model.graph
    if len(graph.output) != 1 or not graph.output[0].name.startswith("Identity"):
        return
    before, after = graph.output[0].name, "output_0"
    graph.output[0].name = after
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [after if name == before else name for name in names]
    onnx.save(model, path)


class _Graph:
    """The nodes of a graph by the tensors that they make and use."""

    def __init__(self, inferred: Any, graph: Any) -> None:
        from onnx import numpy_helper

        self.graph = graph
        values = [*inferred.input, *inferred.value_info, *inferred.output]
        shapes = {one.name: one.type.tensor_type for one in values}
        self.ranks = {
            name: len(kind.shape.dim)
            for name, kind in shapes.items()
            if kind.HasField("shape")
        }
        self.constants = {one.name: one for one in graph.initializer}
        self.makers = {name: node for node in graph.node for name in node.output}
        self.users = defaultdict(list)
        for node in graph.node:
            for name in dict.fromkeys(_read(node)):
                self.users[name].append(node)
        self.value = lambda name: numpy_helper.to_array(self.constants[name])

    def maker(self, name, *kinds):
        """Give the node that makes a tensor, if it is of one of these kinds."""
        node = self.makers.get(name)
        return node if node is not None and node.op_type in kinds else None

    def user(self, node, kind):
        """Give the only node that uses a node's output, if it is of this kind."""
        users = self.users[node.output[0]]
        return users[0] if len(users) == 1 and users[0].op_type == kind else None

    def mean(self, name):
        """Give the node that makes a tensor, if it is a mean over the last axis."""
        node = self.maker(name, "GlobalAveragePool", "ReduceMean")
        if node is None:
            return None
        rank = self.ranks.get(node.input[0])
        if node.op_type == "GlobalAveragePool":  # over all axes but two
            return node if rank == 3 else None
        given = {one.name: one for one in node.attribute}
        axes = list(given["axes"].ints) if "axes" in given else None
        if axes is None and len(node.input) > 1 and node.input[1] in self.constants:
            axes = self.value(node.input[1]).tolist()
        kept = "keepdims" not in given or given["keepdims"].i
        last = axes == [-1] or (rank is not None and axes == [rank - 1])
        return node if kept and last else None

    def constant(self, node):
        """Give the names of a node's constant input and of its other input."""
        names = sorted(node.input, key=lambda name: name not in self.constants)
        return names if len(names) == 2 and names[0] in self.constants else None

    def vector(self, name):
        """Make a vector from a constant of the shape `(1, ..., size)`, or `None`."""
        from onnx import numpy_helper

        value = self.value(name)
        if value.ndim == 0 or value.size != value.shape[-1]:
            return None
        flat = f"{name}_vector"
        if flat not in self.constants:
            made = numpy_helper.from_array(value.reshape(-1), flat)
            self.graph.initializer.append(made)
            self.constants[flat] = made
        return flat

    def replace(self, node, kind, *inputs, **attributes):
        from onnx import helper

        made = helper.make_node(kind, inputs, node.output, node.name, **attributes)
        node.CopyFrom(made)

    def drop_unused(self):
        """Drop nodes and constants that no output needs."""
        needed = {output.name for output in self.graph.output}
        for node in reversed(self.graph.node):
            if needed.intersection(node.output):
                needed.update(_read(node))
        for kept, is_kept in (
            (self.graph.node, lambda node: needed.intersection(node.output)),
            (self.graph.initializer, lambda one: one.name in needed),
        ):
            for index in reversed(range(len(kept))):
                if not is_kept(kept[index]):
                    del kept[index]


def _read(node):
    """Name the tensors that a node reads, also inside of loops."""
    names = [*node.input]
    for attribute in node.attribute:
        for part in (attribute.g, *attribute.graphs):
            names += [name for one in part.node for name in _read(one)]
            names += [output.name for output in part.output]
    return names


def _norm(graph, sqrt):
    """Find the layer normalisation that a square root belongs to, or `None`.

    It is `x * s + (-mean * s + beta)`, where `s` is `gamma / sqrt(variance + epsilon)`.
    """
    added = graph.maker(sqrt.input[0], "Add")
    parts = added and graph.constant(added)
    variance = parts and graph.mean(parts[1])
    square = variance and graph.maker(variance.input[0], "Mul")
    if not square or len(set(square.input)) != 1:
        return None
    centered = graph.maker(square.input[0], "Sub")
    mean = centered and graph.mean(centered.input[1])
    if not mean or mean.input[0] != centered.input[0]:
        return None
    x = mean.input[0]
    reciprocal = graph.user(sqrt, "Reciprocal")
    scale = reciprocal and graph.user(reciprocal, "Mul")
    gammas = scale and graph.constant(scale)
    gamma = gammas and graph.vector(gammas[0])
    if not gamma:
        return None
    scaled = moved = None
    for node in graph.users[scale.output[0]]:
        if node.op_type == "Mul" and x in node.input:
            scaled = node
        elif node.op_type == "Mul" and any(
            negated.input[0] == mean.output[0]
            for name in node.input
            if (negated := graph.maker(name, "Neg"))
        ):
            moved = node
    last = scaled and graph.user(scaled, "Add")
    moved = moved and graph.user(moved, "Add")
    if not last or not moved:
        return None
    inputs = [x, gamma]
    if moved is not last:  # ONNX Runtime 1.32 crashes if beta has an empty name
        betas = graph.constant(moved)
        beta = betas and graph.vector(betas[0])
        if not beta or moved.output[0] not in last.input:
            return None
        inputs.append(beta)
    return last, inputs, float(graph.value(parts[0]))
