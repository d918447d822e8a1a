#include "check_inputs.hpp"

#include <algorithm>

#include "opkit/op/check/check_data.hpp"
#include "program.hpp"

namespace cli {
namespace {

using namespace opkit;

// All lists of `count` items.
template <class T>
std::vector<std::vector<T>> Lists(const std::vector<T>& items, size_t count) {
  std::vector<std::vector<T>> lists = {{}};
  for (size_t i = 0; i < count; ++i) {
    std::vector<std::vector<T>> longer;
    for (const std::vector<T>& list : lists)
      for (const T& item : items) longer.push_back(list), longer.back().push_back(item);
    lists = std::move(longer);
  }
  return lists;
}

}  // namespace

InputFinder::InputFinder(const OpSchema& schema, const OperatorDef& def, std::vector<Shape> shapes)
    : schema_(schema), def_(def), count_(def.inputs().size()) {
  if (shapes.empty())
    shapes_ = {{{2, 3}}, {{4}}, {{2, 3, 4}}, {{4, 4}}, {{1, 2, 5, 5}}};
  else
    shapes_ = {std::move(shapes)};
}

std::vector<InputTypes> InputFinder::Find() {
  std::vector<InputTypes> found = FindAlike();
  return found.empty() ? FindMixed() : found;
}

std::vector<InputTypes> InputFinder::FindAlike() {
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

std::vector<InputTypes> InputFinder::FindMixed() {
  constexpr size_t kMostInputs = 3;  // or there would be too many lists
  std::vector<InputTypes> found;
  if (count_ == 0 || count_ > kMostInputs) return found;
  std::vector<Shapes> lists = shapes_;
  if (lists[0].size() == 1) {
    Shapes alike;
    for (const Shapes& shapes : shapes_) alike.push_back(shapes[0]);
    lists = Lists(alike, count_);
  }
  for (const Shapes& shapes : lists)
    for (const DTypes& dtypes :
         Lists<DType>({DType::kFloat32, DType::kInt64, DType::kInt32, DType::kBool}, count_))
      if (found.empty()) Try(dtypes, shapes, &found);
  return found;
}

InputFinder::DTypes InputFinder::ClaimedDTypes() const {
  DTypes claimed;
  for (const ValueSchema& input : schema_.inputs())
    for (const DType dtype : input.dtypes)
      if (std::find(claimed.begin(), claimed.end(), dtype) == claimed.end())
        claimed.push_back(dtype);
  return claimed;
}

void InputFinder::Try(const DTypes& dtypes, const Shapes& shapes, std::vector<InputTypes>* found) {
  InputTypes inputs;
  for (size_t i = 0; i < count_; ++i)
    inputs.emplace_back(dtypes[dtypes.size() > 1 ? i : 0], shapes[shapes.size() > 1 ? i : 0]);
  try {
    schema_.InferOutputs(def_, inputs);
    found->push_back(std::move(inputs));
  } catch (const Error& error) {
    if (refusal_.empty()) refusal_ = Describe(error);
  }
}

std::string TextOf(const InputTypes& inputs) {
  std::string out;
  for (const TensorInfo& info : inputs) out += (out.empty() ? "" : ", ") + ToString(info);
  return out.empty() ? "no inputs" : out;
}
std::vector<Tensor> MakeTensors(const InputTypes& inputs) {
  std::vector<Tensor> out;
  for (size_t i = 0; i < inputs.size(); ++i)
    out.push_back(detail::MakeTestTensor(inputs[i].shape.ToShape(), inputs[i].dtype, i + 1));
  return out;
}

}  // namespace cli
