// opkit.Graph, opkit.Plan, opkit.Executor, and ONNX models.
#ifndef OPKIT_PYTHON_GRAPHS_HPP_
#define OPKIT_PYTHON_GRAPHS_HPP_

#include <nanobind/nanobind.h>

namespace opkit_python {

void BindGraphs(nanobind::module_& m);

}  // namespace opkit_python

#endif  // OPKIT_PYTHON_GRAPHS_HPP_
