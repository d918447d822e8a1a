// MovingStrings: lets an operator that only moves elements also move strings and packed elements.
// The operator moves the numbers of the strings, or the codes of the packed elements, one in a
// byte.
#ifndef OPKIT_OPS_SUPPORT_MOVING_STRINGS_HPP_
#define OPKIT_OPS_SUPPORT_MOVING_STRINGS_HPP_

#include "opkit/core/packed.hpp"
#include "opkit/op/invoke.hpp"
#include "opkit/op/operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE {
namespace detail {

// Returns the outputs of the operator's reference kernel for these inputs.
inline std::vector<Tensor> RunReference(const OperatorBase& op, const std::vector<Tensor>& inputs) {
  return Invoke(op.type(), inputs, op.def().args(),
                {.backends = kReferenceBackend, .num_outputs = op.OutputSize()});
}

// Numbers the strings of all inputs from 1, runs the operator's reference kernel on the numbers,
// and copies the strings that the numbers in its outputs mean. 0, such as the padding of Pad, is
// "".
OPKIT_COLD inline void MoveStrings(OperatorBase& op,
                                   FunctionRef<Tensor*(int, const Shape&)> output) {
  std::vector<Tensor> strings, inputs;  // `strings` keeps dense copies alive
  std::vector<const std::string*> numbered;
  for (int i = 0; i < op.InputSize(); ++i) {
    if (!op.HasInput(i) || op.Input(i).dtype() != DType::kString) {
      inputs.push_back(op.HasInput(i) ? op.Input(i) : Tensor());
      continue;
    }
    const Tensor& given = op.Input(i);
    strings.push_back(given.is_dense() ? given : given.Contiguous());
    Tensor numbers(given.shape(), DType::kUInt64);
    const auto* from = strings.back().data<std::string>();
    auto* to = numbers.mutable_data<uint64_t>();
    for (int64_t k = 0; k < given.numel(); ++k) {
      numbered.push_back(from + k);
      to[k] = numbered.size();
    }
    inputs.push_back(std::move(numbers));
  }
  const std::vector<Tensor> moved = RunReference(op, inputs);
  std::vector<std::vector<std::string>> results;  // an output may be the memory of an input
  for (const Tensor& numbers : moved) {
    std::vector<std::string>& result = results.emplace_back();
    for (const uint64_t number : numbers.ToVector<uint64_t>()) {
      if (number > numbered.size())
        Throw(ErrorCode::kTypeMismatch, op.type(), " mixes strings with other elements");
      result.push_back(number == 0 ? std::string() : *numbered[number - 1]);
    }
  }
  for (int o = 0; o < op.OutputSize(); ++o) {
    if (!op.HasOutput(o)) continue;
    std::vector<std::string>& result = results[Index(o)];
    Tensor* out = output(o, moved[Index(o)].shape());
    std::move(result.begin(), result.end(), out->mutable_data<std::string>());
  }
}

// Runs the operator's reference kernel on the codes of its elements of this packed dtype, and packs
// the codes in its outputs.
OPKIT_COLD inline void MovePacked(OperatorBase& op, DType dtype,
                                  FunctionRef<Tensor*(int, const Shape&)> output) {
  const int bits = BitSize(dtype);
  std::vector<Tensor> inputs;
  for (int i = 0; i < op.InputSize(); ++i) {
    inputs.push_back(op.HasInput(i) ? op.Input(i) : Tensor());
    if (inputs.back().dtype() != dtype) continue;
    const Tensor packed = inputs.back();
    inputs.back() = Tensor(packed.shape(), DType::kUInt8);
    Unpack(packed.raw_data(), bits, 0, packed.numel(), inputs.back().mutable_data<uint8_t>());
  }
  const std::vector<Tensor> moved = RunReference(op, inputs);
  for (int o = 0; o < op.OutputSize(); ++o) {
    if (!op.HasOutput(o)) continue;
    const Tensor& codes = moved[Index(o)];
    Pack(codes.data<uint8_t>(), bits, 0, codes.numel(),
         output(o, codes.shape())->raw_mutable_data());
  }
}

}  // namespace detail

// The class Op, for an operator whose schema TakesStrings(). Input `kData` says whether a run moves
// strings or packed elements. An operator with the attribute `reduction` computes with elements
// unless it is "none"; it is then an Error for strings and packed ones.
template <class Op, int kData = 0>
class MovingStrings final : public Op {
 public:
  using Op::Op;

  bool RunOnDevice() override {
    const DType dtype = this->Input(kData).dtype();
    const auto output = [&](int o, const Shape& shape) { return this->Output(o, shape, dtype); };
    if (IsPlain(dtype) || IsFloat8(dtype)) [[likely]]
      return Op::RunOnDevice();
    if (Computes())
      Throw(ErrorCode::kUnsupported, this->type(), " does not compute with elements of ", dtype,
            "; it moves them, with reduction=none");
    this->Infer();  // refuses inputs of other dtypes, which could be taken for numbers or codes
    if (dtype == DType::kString)
      detail::MoveStrings(*this, output);
    else if (IsPacked(dtype))
      detail::MovePacked(*this, dtype, output);
    else
      Throw(ErrorCode::kUnsupported, this->type(), " does not move elements of ", dtype);
    return true;
  }

 private:
  bool Computes() const {
    return this->def().args().template Get<std::string>("reduction", "none") != "none";
  }
};

}}  // namespace opkit

#endif  // OPKIT_OPS_SUPPORT_MOVING_STRINGS_HPP_
