// The definitions of opkit/op/check/input_finder.hpp.
#ifndef OPKIT_OP_CHECK_IMPL_INPUT_FINDER_IPP_
#define OPKIT_OP_CHECK_IMPL_INPUT_FINDER_IPP_

#include <algorithm>

#include "opkit/op/check/input_finder.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

// All lists of `count` items.
template <class T>
std::vector<std::vector<T>> ListsOf(const std::vector<T>& items, size_t count) {
  std::vector<std::vector<T>> lists = {{}};
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::vector<T>> longer;
    for (const std::vector<T>& list : lists)
      for (const T& item : items) longer.push_back(list), longer.back().push_back(item);
    lists = std::move(longer);
  }
  return lists;
}

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
    for (const Shapes& shapes : shapes_) Try({dtype}, shapes, &found);
    tells_apart |= found.size() == before;
    if (dtype == dtypes[0]) of_first = found;
  }
  return tells_apart ? found : of_first;
}

OPKIT_INLINE std::vector<InputTypes> InputFinder::FindMixed(size_t most, const DTypes& given) {
  constexpr size_t kMostInputs = 3;
  std::vector<InputTypes> found;
  if (count_ == 0 || count_ > kMostInputs) return found;
  std::vector<Shapes> lists = shapes_;
  if (lists[0].size() == 1) {
    Shapes alike;
    for (const Shapes& shapes : shapes_) alike.push_back(shapes[0]);
    if (shapes_.size() > 1) alike.insert(alike.end(), {{3}, {3, 4}, {}});  // beside [2, 3]
    lists = ListsOf(alike, count_);
  }
  for (const Shapes& shapes : lists)
    if (!given.empty() && found.size() < most) Try(given, shapes, &found);
  if (!found.empty()) return found;
  const DTypes usual = {DType::kFloat32, DType::kInt64, DType::kInt32, DType::kBool};
  for (const Shapes& shapes : lists)
    for (const DTypes& dtypes : ListsOf(usual, count_))
      if (found.size() < most) Try(dtypes, shapes, &found);
  return found;
}

OPKIT_INLINE InputFinder::DTypes InputFinder::ClaimedDTypes() const {
  DTypes claimed;
  for (const ValueSchema& input : schema_.inputs())
    for (const DType dtype : input.dtypes)
      if (!std::ranges::count(claimed, dtype)) claimed.push_back(dtype);
  return claimed;
}

OPKIT_INLINE void InputFinder::Try(const DTypes& dtypes, const Shapes& shapes,
                                   std::vector<InputTypes>* found) {
  InputTypes inputs;
  for (size_t i = 0; i < count_; ++i)
    inputs.emplace_back(dtypes[dtypes.size() > 1 ? i : 0], shapes[shapes.size() > 1 ? i : 0]);
  try {
    schema_.InferOutputs(def_, inputs);
    found->push_back(std::move(inputs));
  } catch (...) {
    if (refusal_.empty()) refusal_ = CurrentError().message();
  }
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_CHECK_IMPL_INPUT_FINDER_IPP_
