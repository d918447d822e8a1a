// InputFinder's definitions: the two searches and the test by inference.
#ifndef OPKIT_OP_CHECK_IMPL_INPUT_FINDER_IPP_
#define OPKIT_OP_CHECK_IMPL_INPUT_FINDER_IPP_

#include <algorithm>

#include "opkit/op/check/input_finder.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE InputFinder::InputFinder(const OpSchema& schema, const OperatorDef& def, Shapes shapes)
    : schema_(schema), def_(def), count_(def.inputs().size()) {
  if (shapes.empty())
    shapes_ = {{{2, 3}}, {{4}}, {{2, 3, 4}}, {{4, 4}}, {{1, 2, 5, 5}}};
  else
    shapes_ = {std::move(shapes)};
}

OPKIT_INLINE std::vector<InputTypes> InputFinder::Find() {
  std::vector<InputTypes> found = FindAlike();
  return found.empty() ? FindMixed(1) : found;
}

OPKIT_INLINE std::vector<InputTypes> InputFinder::FindAlike() {
  DTypes dtypes = ClaimedDTypes();
  const bool claims = !dtypes.empty();
  if (!claims)
    dtypes = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kInt64,
              DType::kInt32,   DType::kUInt8,   DType::kBool};
  std::vector<InputTypes> found, of_first;
  bool tells_apart = claims;
  for (const DType dtype : dtypes) {
    const size_t before = found.size();
    for (const Shapes& shapes : shapes_) Try(dtype, shapes, &found);
    tells_apart |= found.size() == before;
    if (dtype == dtypes[0]) of_first = found;
  }
  if (found.empty() && !claims)
    for (const DType dtype : {DType::kInt8, DType::kInt16, DType::kUInt16, DType::kUInt32,
                              DType::kUInt64, DType::kBFloat16, DType::kComplex64})
      for (const Shapes& shapes : shapes_) Try(dtype, shapes, &found);
  return tells_apart ? found : of_first;
}

OPKIT_INLINE std::vector<InputTypes> InputFinder::FindMixed(size_t most, const DTypes& given) {
  if (count_ == 0) return {};
  std::vector<Shapes> shapes(count_);
  if (shapes_[0].size() == 1) {
    Shapes& alike = shapes[0];
    for (const Shapes& one : shapes_) alike.push_back(one[0]);
    // Shapes that are tried together with [2, 3].
    if (shapes_.size() > 1) alike.insert(alike.end(), {{3}, {3, 4}, {3, 3}, {}});
    shapes.assign(count_, Shapes(alike));
  } else {
    for (size_t i = 0; i < count_; ++i) shapes[i] = {shapes_[0][i]};
  }
  const DTypes usual = {DType::kFloat32, DType::kInt64, DType::kInt32, DType::kBool, DType::kUInt8};
  std::vector<std::vector<DTypes>> dtypes = {std::vector<DTypes>(count_, usual)};
  if (!given.empty()) {
    dtypes.insert(dtypes.begin(), std::vector<DTypes>(count_));
    for (size_t i = 0; i < count_; ++i) dtypes[0][i] = {given[i]};
  }
  // The second search is needed if the inference function fails on unknown inputs, instead of
  // leaving the outputs unknown.
  for (const std::vector<DTypes>& of_inputs : dtypes)
    for (const bool asks_early : {true, false}) {
      Search search{shapes, of_inputs, asks_early, most};
      InputTypes begun;
      Continue(search, begun);
      if (!search.found.empty()) return std::move(search.found);
    }
  return {};
}

OPKIT_INLINE void InputFinder::Continue(Search& search, InputTypes& begun) {
  const size_t i = begun.size();
  if (i == count_) return search.found.push_back(begun);
  for (const Shape& shape : search.shapes[i])
    for (const DType dtype : search.dtypes[i]) {
      if (search.found.size() == search.most || search.left == 0) return;
      begun.emplace_back(dtype, shape);
      const bool asks = search.asks_early || begun.size() == count_;
      search.left -= asks ? 1 : 0;
      if (!asks || Accepts(begun)) Continue(search, begun);
      begun.pop_back();
    }
}

OPKIT_INLINE InputFinder::DTypes InputFinder::ClaimedDTypes() const {
  DTypes claimed;
  for (const ValueSchema& input : schema_.inputs())
    for (const DType dtype : input.dtypes)
      if (!std::ranges::count(claimed, dtype)) claimed.push_back(dtype);
  return claimed;
}

OPKIT_INLINE void InputFinder::Try(DType dtype, const Shapes& shapes,
                                   std::vector<InputTypes>* found) {
  InputTypes inputs;
  for (size_t i = 0; i < count_; ++i) inputs.emplace_back(dtype, shapes[shapes.size() > 1 ? i : 0]);
  if (Accepts(inputs)) found->push_back(std::move(inputs));
}

OPKIT_INLINE bool InputFinder::Accepts(InputTypes inputs) {
  inputs.resize(count_);
  try {
    schema_.InferOutputs(def_, std::move(inputs));
    return true;
  } catch (...) {
    if (refusal_.empty()) refusal_ = CurrentError().message();
    return false;
  }
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_CHECK_IMPL_INPUT_FINDER_IPP_
