// NonMaxSuppression: selects the boxes with the best scores that overlap no better one too much.
// Source: https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html, opset 11.
#ifndef OPKIT_OPS_VISION_NON_MAX_SUPPRESSION_HPP_
#define OPKIT_OPS_VISION_NON_MAX_SUPPRESSION_HPP_

#include <algorithm>

#include "opkit/ops/support/standard_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

inline void InferNonMaxSuppression(InferenceContext& c) {
  const SymbolicShape &boxes = c.input_shape(0), &scores = c.input_shape(1);
  auto fail = [&] {
    Throw(ErrorCode::kInvalidArgument, "NonMaxSuppression: boxes ", ToString(boxes), ", scores ",
          ToString(scores), ": expected [batches, boxes, 4] and [batches, classes, boxes]");
  };
  if (boxes.has_rank() && (boxes.rank() != 3 || !Dim::Compatible(boxes[2], 4))) fail();
  if (scores.has_rank() && scores.rank() != 3) fail();
  if (boxes.has_rank() && scores.has_rank() &&
      (!Dim::Compatible(boxes[0], scores[0]) || !Dim::Compatible(boxes[1], scores[2])))
    fail();
  const auto format = c.Arg<int64_t>("center_point_box");
  if (format != 0 && format != 1)
    Throw(ErrorCode::kInvalidArgument, "NonMaxSuppression: center_point_box is ", format,
          ", expected 0 or 1");
  c.SetOutput(0, DType::kInt64, {Dim(), 3});
}

}  // namespace detail

class NonMaxSuppressionOp final : public StandardOperator {
 public:
  using StandardOperator::StandardOperator;
  bool RunOnDevice() override {
    Infer();
    const Tensor &boxes = DenseInput(0), &scores = DenseInput(1);
    const auto most = Number<int64_t>(2, 0);
    const auto limit = Number<float>(3, 0);
    const float* least = HasInput(4) ? DenseInput(4).data<float>() : nullptr;
    if (least) Number<float>(4, 0);  // refuses more than one element
    const int64_t count = boxes.dim(1), classes = scores.dim(1);
    std::vector<int64_t> selected;  // rows of the output, joined
    for (int64_t list = 0; list < scores.dim(0) * classes && most > 0; ++list) {
      const float* score = scores.data<float>() + list * count;
      std::vector<int64_t> order;
      for (int64_t i = 0; i < count; ++i)
        if (!least || score[i] > *least) order.push_back(i);
      detail::StableSort(order, [&](int64_t a, int64_t b) { return score[a] > score[b]; });
      const int64_t batch = list / classes;
      std::vector<Box> kept;
      for (const int64_t i : order) {
        if (static_cast<int64_t>(kept.size()) == most) break;
        const Box box = BoxAt(boxes.data<float>() + (batch * count + i) * 4);
        bool free = true;
        for (const Box& better : kept) free = free && !(Overlap(box, better) > limit);
        if (!free) continue;
        kept.push_back(box);
        selected.insert(selected.end(), {batch, list % classes, i});
      }
    }
    Tensor* y = Output(0, {static_cast<int64_t>(selected.size()) / 3, 3}, DType::kInt64);
    std::copy(selected.begin(), selected.end(), y->mutable_data<int64_t>());
    return true;
  }

 private:
  struct Box {
    float begin[2], end[2];
  };

  // Returns the one element of input i; `missing` without the input.
  template <class T>
  T Number(int i, T missing) {
    if (!HasInput(i)) return missing;
    if (Input(i).numel() != 1)
      Throw(ErrorCode::kInvalidArgument, "NonMaxSuppression: input ", i, " is ", Input(i),
            ", expected one element");
    return DenseInput(i).data<T>()[0];
  }
  Box BoxAt(const float* x) const {
    Box box{};
    for (int axis = 0; axis < 2; ++axis) {
      const float a = x[axis], b = x[axis + 2];
      box.begin[axis] = centers_ ? a - b / 2 : (std::min)(a, b);
      box.end[axis] = centers_ ? a + b / 2 : (std::max)(a, b);
    }
    return box;
  }
  // Returns the area of the intersection, divided by that of the union; 0 if a box has no area.
  static float Overlap(const Box& a, const Box& b) {
    float common = 1, area_a = 1, area_b = 1;
    for (int axis = 0; axis < 2; ++axis) {
      const float begin = (std::max)(a.begin[axis], b.begin[axis]);
      common *= (std::max)((std::min)(a.end[axis], b.end[axis]) - begin, 0.f);
      area_a *= a.end[axis] - a.begin[axis];
      area_b *= b.end[axis] - b.begin[axis];
    }
    return area_a > 0 && area_b > 0 ? common / (area_a + area_b - common) : 0;
  }

  const bool centers_ = GetSingleArgument<int64_t>("center_point_box") != 0;
};

OPKIT_STANDARD_OPERATOR(NonMaxSuppression, kNone, NonMaxSuppressionOp)
    .NumInputs(2, 5)
    .Input(0, "boxes", "[batches, boxes, 4]", {DType::kFloat32})
    .Input(1, "scores", "[batches, classes, boxes]", {DType::kFloat32})
    .Input(2, "max_output_boxes_per_class", "one number; without it no box is selected",
           {DType::kInt64})
    .Input(3, "iou_threshold",
           "one number: a box is left out if its intersection with a better one, divided by their "
           "union, is above it; 0 without it",
           {DType::kFloat32})
    .Input(4, "score_threshold", "one number: only boxes with scores above it are selected",
           {DType::kFloat32})
    .Output(0, "selected_indices",
            "[selected, 3]: batch, class and box; in this order, the best boxes first",
            {DType::kInt64})
    .Arg<int64_t>("center_point_box",
                  "0: a box is y1, x1, y2, x2 of two corners; 1: x, y of its center, width, height",
                  0)
    .Infer(detail::InferNonMaxSuppression)
    .Doc("The boxes with the best scores that overlap no better box of their class too much.");

}}  // namespace opkit

#endif  // OPKIT_OPS_VISION_NON_MAX_SUPPRESSION_HPP_
