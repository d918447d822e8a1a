// The definitions of ready_operator.hpp.
#ifndef OPKIT_EXPORT_IMPL_READY_OPERATOR_IPP_
#define OPKIT_EXPORT_IMPL_READY_OPERATOR_IPP_

#include "opkit/device/native_stream.hpp"
#include "opkit/export/ready_operator.hpp"
#include "opkit/op/create_operator.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

OPKIT_INLINE ReadyOperator::ReadyOperator(const std::string& op, const std::vector<int>& present,
                                          Arguments args, const InvokeOptions& options)
    : op_(op, present, std::move(args), options),
      mutated_(MutatedInputs(op_.schema(), op_.def())),
      inputs_(present.size()),
      results_(Index(op_.num_outputs())),
      given_(results_.size()) {
  for (size_t i = 0; i < present.size(); ++i)
    present_.push_back(present[i] ? &inputs_[i] : nullptr);
}

OPKIT_INLINE std::span<const ReadyOperator::Inferred> ReadyOperator::InferOutputs() {
  if (!inference_.IsFresh(present_)) [[unlikely]] {
    try {
      inference_.Infer(
          def(), present_, [&](InferenceContext& context) { schema().Infer(context); }, [] {});
      inference_.Keep();
    } catch (...) {
      std::vector<Tensor> none(results_.size());
      op_.Run(inputs_, none);  // infers too: throws the same error, with the context of a run
      throw;
    }
  }
  return inference_.outputs();
}

OPKIT_INLINE void ReadyOperator::CheckFits(int o, DType dtype, const Shape* shape,
                                           const ForeignTensor& found) const {
  const bool same_type = dtype == DType::kUndefined || dtype == found.dtype;
  bool same_shape = true;
  if (shape) {
    same_shape = shape->rank() == found.rank;
    for (int axis = 0; axis < found.rank && same_shape; ++axis)
      same_shape = shape->data()[axis] == found.shape[axis];
  }
  if (same_type && same_shape) [[likely]]
    return;
  const auto& declared = schema().outputs();
  const std::string name =
      Index(o) < declared.size() ? StrCat(" '", declared[Index(o)].name, "'") : std::string();
  const Dims extents(found.shape, static_cast<size_t>(found.rank));
  Throw(same_type ? ErrorCode::kInvalidArgument : ErrorCode::kTypeMismatch, "output ", o, name,
        " of ", def().type(), " is given as ", found.dtype, extents, ", but the result is ",
        dtype == DType::kUndefined ? found.dtype : dtype, shape ? ToString(*shape) : "",
        "; give a tensor of this type");
}

// True if output o, which views the host's memory, may change an input before the operator reads
// it.
OPKIT_INLINE bool ReadyOperator::SharesInput(int o) const {
  const Tensor& output = results_[Index(o)];
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const Tensor& input = inputs_[i];
    if (!input.storage() || output.storage()->IsApartFrom(*input.storage())) [[likely]]
      continue;
    const bool in_place = input.raw_data() == output.raw_data() && !input.has_strides() &&
                          input.dtype() == output.dtype() && input.shape() == output.shape() &&
                          schema().CanInplace(static_cast<int>(i), o);
    if (!in_place) return true;
  }
  return false;
}

OPKIT_INLINE void ReadyOperator::RefuseCopyOfMutated(int i) const {
  if (inputs_[Index(i)].numel() == 0 || !(mutated_ >> i & 1)) return;
  Throw(ErrorCode::kInvalidArgument, "operator ", def().type(), " writes to input ", i,
        ", which has negative strides or an address that is not aligned; give a dense tensor");
}

// The bytes that a tensor of at most one axis with several elements covers: from `begin`, with
// `step` bytes from one element to the next. A dense tensor is one element.
struct OPKIT_IMAGE_LOCAL StridedRange {
  const char* begin;
  int64_t count = 1, step = 0, item;
  bool known = true;  // false for several axes with gaps

  explicit StridedRange(const ForeignTensor& tensor)
      : begin(static_cast<const char*>(tensor.data)), item(ItemSize(tensor.dtype)) {
    if (tensor.is_dense()) {
      for (int axis = 0; axis < tensor.rank; ++axis) item *= tensor.shape[axis];
    } else {
      int axes = 0;
      for (int axis = 0; axis < tensor.rank; ++axis) {
        if (tensor.shape[axis] == 1) continue;
        ++axes;
        count = tensor.shape[axis];
        step = tensor.strides[axis] * item;
      }
      known = axes == 1;
      if (step < 0) begin += step * (count - 1), step = -step;
    }
    if (count == 1 || step == 0) count = 1, step = item;
  }
  bool Shares(const StridedRange& other) const {
    if (!known || !other.known || item == 0 || other.item == 0) return false;
    for (int64_t i = 0; i < count; ++i) {
      // The first element of the other that ends behind the begin of this one.
      const int64_t behind = begin + i * step - other.begin - other.item;
      const int64_t first = behind < 0 ? 0 : behind / other.step + 1;
      if (first < other.count && other.begin + first * other.step < begin + i * step + item)
        return true;
    }
    return false;
  }
};

OPKIT_INLINE void ReadyOperator::CheckApart(int o, const ForeignTensor& found) const {
  for (size_t i = 0; i < given_.size(); ++i)
    if (static_cast<int>(i) != o && given_[i].given &&
        StridedRange(found).Shares(StridedRange(given_[i].tensor)))
      Throw(ErrorCode::kInvalidArgument, "outputs ", i, " and ", o, " of ", def().type(),
            " are given as tensors that share memory");
}

OPKIT_INLINE void ReadyOperator::SetOutput(int o, const ForeignTensor& tensor) {
  const Inferred& inferred = InferOutputs()[Index(o)];
  CheckFits(o, inferred.dtype, inferred.known ? &inferred.shape : nullptr, tensor);
  if (given_.size() > 1) CheckApart(o, tensor);
  Tensor& view = results_[Index(o)];
  Given& given = given_[Index(o)];
  if (inferred.known && inferred.dtype != DType::kUndefined)
    given.viewed = ViewForeignOutput(tensor, view);
  else
    view = Tensor(tensor.device);
  if (given.viewed && SharesInput(o)) [[unlikely]] {
    view = Tensor(tensor.device);
    given.viewed = false;
  }
  given.given = true;
  given.tensor = tensor;
}

OPKIT_INLINE void ReadyOperator::SetOutput(int o, Tensor tensor) {
  Given& given = given_[Index(o)];
  given.owner = std::move(tensor);
  given.strides = given.owner.strides();
  ForeignTensor foreign = {
      given.owner.raw_mutable_data(), given.owner.dtype(),
      given.owner.device(),           given.owner.rank(),
      given.owner.shape().data(),     given.owner.has_strides() ? given.strides.data() : nullptr};
  SetOutput(o, foreign);
  if (given.viewed) results_[Index(o)] = given.owner;
}

OPKIT_INLINE void ReadyOperator::RunBy(void* native_stream, bool issue) {
  bool copies = false;
  for (size_t o = 0; o < given_.size(); ++o)
    if (given_[o].given)
      copies |= !given_[o].viewed;
    else
      results_[o] = Tensor();
  if (!issue) {
    op_.Run(inputs_, results_);
  } else {
    const NativeStreamFunction on_stream = FindNativeStreams(device().type);
    if (!on_stream)
      Throw(ErrorCode::kUnsupported, "device ", device(), " has no native streams in this program");
    on_stream(device(), native_stream,
              [&] { copies ? op_.Run(inputs_, results_) : op_.Issue(inputs_, results_); });
  }
  // The results that are not in the host's memory: of views that an operator may not write to, and
  // of outputs that share their memory with an input.
  for (size_t o = 0; o < given_.size(); ++o)
    if (given_[o].given && !given_[o].viewed)
      CheckFits(static_cast<int>(o), results_[o].dtype(), &results_[o].shape(), given_[o].tensor);
  for (size_t o = 0; o < given_.size(); ++o)
    if (given_[o].given && results_[o].raw_data() != given_[o].tensor.data)
      CopyToForeign(results_[o], given_[o].tensor);
}

OPKIT_INLINE Tensor ReadyOperator::TakeOutput(int o) {
  Tensor result = std::move(results_[Index(o)]);
  if (!result.storage()) return result;
  for (const std::vector<Tensor>* tensors : {&inputs_, &results_})
    for (const Tensor& other : *tensors)
      if (result.storage() == other.storage()) return result.Contiguous();
  return result;
}

OPKIT_INLINE void ReadyOperator::CopyOutput(int o, const ForeignTensor& tensor) const {
  const Tensor& made = result(o);
  CheckFits(o, made.dtype(), &made.shape(), tensor);
  CopyToForeign(made, tensor);
}

OPKIT_INLINE void ReadyOperator::Release() noexcept {
  for (size_t o = 0; o < given_.size(); ++o) {
    EndView(results_[o]);
    given_[o].given = given_[o].viewed = false;
    given_[o].owner = Tensor();
  }
  for (Tensor& input : inputs_) EndView(input);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_EXPORT_IMPL_READY_OPERATOR_IPP_
