// AffineGrid: positions of a regular grid, moved by affine matrices; GridSample reads them. Source:
// https://onnx.ai/onnx/operators/onnx__AffineGrid.html, opset 20.
#ifndef OPKIT_OPS_VISION_AFFINE_GRID_HPP_
#define OPKIT_OPS_VISION_AFFINE_GRID_HPP_

#include "opkit/ops/support/convert.hpp"
#include "opkit/ops/support/element_types.hpp"
#include "opkit/ops/support/integer_inputs.hpp"
#include "opkit/ops/support/node_gradient.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferAffineGrid(InferenceContext& c) {
  const SymbolicShape &theta = c.input_shape(0), size = ShapeInInput(c, 1, "AffineGrid: size");
  auto fail = [&] {
    Throw(ErrorCode::kInvalidArgument, "AffineGrid: theta ", ToString(theta), ", size ",
          ToString(size), ": expected [N, 2, 3] and [N, C, H, W], or [N, 3, 4] and ",
          "[N, C, D, H, W]");
  };
  if (size.has_rank() && size.rank() != 4 && size.rank() != 5) fail();
  if (theta.has_rank() && theta.rank() != 3) fail();
  SymbolicShape grid;
  if (size.has_rank()) {
    const int axes = size.rank() - 2;
    if (theta.has_rank() &&
        (!Dim::Compatible(theta[0], size[0]) || !Dim::Compatible(theta[1], axes) ||
         !Dim::Compatible(theta[2], axes + 1)))
      fail();
    std::vector<Dim> dims{size[0]};
    dims.insert(dims.end(), size.dims().begin() + 2, size.dims().end());
    dims.emplace_back(axes);
    grid = SymbolicShape(std::move(dims));
  }
  c.SetOutput(0, c.input_dtype(0), grid);
}

// A position is theta times [p, 1], with p the position that the identity matrix gives. So the
// gradient of theta is the sum of the products of gradients with [p, 1].
OPKIT_NODE_GRADIENT(AffineGrid) {
  const std::string eye = Node("EyeLike", {Node("Gather", {I(0), Integer(0)})});
  const std::string identity = Node("Add", {Node("ZerosLike", {I(0)}), eye});
  const std::string axes = Node("Gather", {Node("Shape", {I(0)}), Integers({1})});
  const std::string list = Node("Concat", {Integers({0, -1}), axes}, {{"axis", 0}});
  const std::string p = Node("Reshape", {Node("AffineGrid", {identity, I(1)}, Def().args()), list});
  const std::string slopes =
      Node("Transpose", {Node("Reshape", {GO(0), list})}, {{"perm", {0, 2, 1}}});
  const std::string sums = Node("ReduceSum", {slopes, Integers({2})});
  Give(0, "Concat", {Node("MatMul", {slopes, p}), sums}, {{"axis", 2}});
}

}  // namespace detail

// Computes in double.
class AffineGridOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    const std::vector<double> theta = detail::NumbersOf<double>(DenseInput(0));
    Tensor* y = InferredOutput(0);
    const int axes = y->rank() - 2;
    const int64_t points = y->shape().NumelBetween(1, axes + 1);
    return Visit<FloatTypes>([&]<class T>() {
      T* out = y->mutable_data<T>();
      for (int64_t at = 0; at < y->dim(0) * points; ++at) {
        double place[4] = {};  // the last axis first, then 1
        int64_t rest = at % points;
        for (int i = 0; i < axes; ++i) {
          const int64_t extent = y->dim(axes - i), index = rest % extent;
          rest /= extent;
          place[i] = Position(static_cast<double>(index), static_cast<double>(extent));
        }
        place[axes] = 1;
        const double* row = theta.data() + at / points * axes * (axes + 1);
        for (int i = 0; i < axes; ++i, row += axes + 1) {
          double sum = 0;
          for (int k = 0; k <= axes; ++k) sum += row[k] * place[k];
          *out++ = ConvertElement<T>(sum);
        }
      }
    });
  }

 private:
  // Returns the position of an element, between -1 and 1.
  double Position(double index, double extent) const {
    if (!align_corners_) return (2 * index + 1) / extent - 1;
    return extent > 1 ? 2 * index / (extent - 1) - 1 : -1;
  }

  const bool align_corners_ = GetSingleArgument<int64_t>("align_corners") != 0;
};

OPKIT_STANDARD_OPERATOR(AffineGrid, kMaker, AffineGridOp)
    .NumInputs(2)
    .InputsOnHost({1})
    .Input(0, "theta", "[N, 2, 3] or [N, 3, 4]: affine matrices", FloatTypes::DTypes())
    .Input(1, "size", "the extents N, C, H, W or N, C, D, H, W of an image or a volume",
           {DType::kInt64})
    .Output(0, "grid", "[N, H, W, 2] or [N, D, H, W, 3]: positions, the last axis first",
            FloatTypes::DTypes())
    .Arg<int64_t>("align_corners",
                  "1: -1 and 1 are the centers of the outermost elements; 0: their outer edges", 0)
    .PointwiseCost(6)
    .Infer(detail::InferAffineGrid)
    .Doc("The positions of the elements of an image or a volume, moved by affine matrices.");

}}  // namespace opkit

#endif  // OPKIT_OPS_VISION_AFFINE_GRID_HPP_
