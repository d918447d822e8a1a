// MxnetInstance: runs an operator of a library for MXNet.
#ifndef OPKIT_INTEROP_MXNET_INSTANCE_HPP_
#define OPKIT_INTEROP_MXNET_INSTANCE_HPP_

#include <cstring>

#include "opkit/interop/mxnet/operator.hpp"
#include "opkit/op/function/stateful_op.hpp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// The operator of one node: its attributes as text, and the author's state. Only one thread at a
// time runs it (rule 7 of opkit_abi.h).
class MxnetInstance {
 public:
  // Fills in a kernel's functions. A subgraph operator has the gradient of its subgraph, unless it
  // has a backward function of its own. An operator with sparse tensors has no gradient here.
  static void MakeKernel(MxnetOperator::Device& device) {
    opkit_kernel& kernel = device.kernel;
    kernel.create = [](const opkit_kernel* self, const opkit_node* node, void** instance) {
      return GuardedCall([&] {
        *instance =
            new MxnetInstance(*static_cast<const MxnetOperator::Device*>(self->author), *node);
      });
    };
    kernel.destroy = [](void* instance) {
      GuardedCall([&] { delete static_cast<MxnetInstance*>(instance); });
    };
    kernel.forward = &RunPass<FunctionPass::kForward>;
    if (!device.op->infer_stype() &&
        (device.backward || (device.create && !device.op->is_subgraph())))
      kernel.backward = &RunPass<FunctionPass::kBackward>;
    if (device.create) kernel.flags = OPKIT_KERNEL_STATEFUL;
  }

  MxnetInstance(const MxnetOperator::Device& device, const opkit_node& node)
      : op_(*device.op), device_(device) {
    op_.ReadAttributes(node, attributes_);
    storages_ = op_.StoragesOf(node, attributes_);
    is_dense_ = !op_.infer_stype();
    is_gpu_ = static_cast<DeviceType>(node.device_type) == DeviceType::kGPU;
    if (!is_dense_ && is_gpu_)
      Throw(ErrorCode::kUnsupported, "operator ", op_.name(), " of library ", op_.api().name(),
            " has sparse tensors, which run here on the CPU only");
  }
  MxnetInstance(MxnetInstance&&) = delete;
  ~MxnetInstance() {
    for (void* const state : old_states_) DestroyState(state);
    DestroyState(state_);
  }

 private:
  template <FunctionPass kPass>
  static opkit_status RunPass(void* instance, const opkit_call* call) {
    return GuardedCall([&] { static_cast<MxnetInstance*>(instance)->Run(kPass, call); });
  }

  void Run(FunctionPass pass, const opkit_call* call) {
    const bool is_forward = pass == FunctionPass::kForward;
    call_ = call;
    failure_ = nullptr;
    ++version_;
    inputs_.Clear();
    outputs_.Clear();
    if (!is_dense_)
      AddSparse();
    else if (is_forward)
      AddForward();
    else
      AddBackward();
    if (device_.create) MakeState(is_forward);
    void* const random = op_.uses_random() && !is_gpu_ ? random_.Seed(call->random_seed) : nullptr;
    const MxnetApi& api = op_.api();
    const auto run = [&](auto function, auto... first) {
      return function(first..., inputs_.shapes.data(), inputs_.ranks.data(), inputs_.data.data(),
                      inputs_.types.data(), inputs_.versions.data(), inputs_.devices.data(),
                      inputs_.device_ids.data(), inputs_.size(), outputs_.shapes.data(),
                      outputs_.ranks.data(), outputs_.data.data(), outputs_.types.data(),
                      outputs_.versions.data(), outputs_.devices.data(), outputs_.device_ids.data(),
                      outputs_.size(), &AllocateOnCpu, static_cast<void*>(this), &AllocateOnGpu,
                      static_cast<void*>(this), is_gpu_ ? call->stream : nullptr, &AllocateSparse,
                      static_cast<void*>(this), inputs_.storage.data(), outputs_.storage.data(),
                      inputs_.indices.data(), outputs_.indices.data(), inputs_.indptr.data(),
                      outputs_.indptr.data(), inputs_.num_indices.data(),
                      outputs_.num_indices.data(), inputs_.num_indptr.data(),
                      outputs_.num_indptr.data(), random, static_cast<void*>(nullptr));
    };
    try {
      api.Run([&] {
        if (device_.create) return run(api->op_call_fstateful_compute, int{is_forward}, state_);
        return run(api->op_call_fcompute, is_forward ? device_.forward : device_.backward,
                   attributes_.keys(), attributes_.values(), attributes_.size());
      });
    } catch (...) {
      if (!failure_) throw;
    }
    if (failure_) std::rethrow_exception(failure_);
    if (!is_dense_) FinishSparse();
  }

  const char* DeviceName() const { return is_gpu_ ? "gpu" : "cpu"; }
  void AddInput(const opkit_tensor& tensor) { inputs_.Add(tensor, DeviceName(), version_); }
  void AddOutput(const opkit_tensor& tensor) { outputs_.Add(tensor, DeviceName(), version_); }
  // Allocates a tensor in the memory of the run, for a value that the program does not have.
  opkit_tensor Temporary(int32_t dtype, int32_t rank, const int64_t* shape) {
    opkit_tensor made{};
    made.size = sizeof made;
    AcceptAnswer(call_->host->temporary(call_, dtype, rank, shape, &made), call_->host);
    return made;
  }
  const opkit_tensor& Present(uint64_t input) const {
    const opkit_tensor& tensor = *opkit_input(call_, input);
    if (tensor.dtype == OPKIT_UNDEFINED)
      Throw(ErrorCode::kInvalidArgument, "input ", input,
            " is left out; operators of libraries for MXNet need all inputs");
    return tensor;
  }

  void AddForward() {
    for (uint64_t i = 0; i < call_->num_inputs; ++i) AddInput(Present(i));
    bool all = true;
    for (uint64_t i = 0; i < call_->num_outputs; ++i)
      all &= opkit_output(call_, i)->req != OPKIT_REQ_NONE;
    if (!all) InferOutputs();
    for (uint64_t i = 0; i < call_->num_outputs; ++i) {
      const opkit_tensor& output = *opkit_output(call_, i);
      AddOutput(output.req != OPKIT_REQ_NONE ? output
                                             : AllocateOutput(i, out_types_[i], out_shapes_[i]));
    }
  }
  // Inputs of a backward run: gradients of the outputs, the inputs, the outputs.
  void AddBackward() {
    const uint64_t num_in = call_->num_outputs, num_out = (call_->num_inputs - num_in) / 2;
    for (uint64_t i = 0; i < call_->num_inputs; ++i) {
      const opkit_tensor& tensor = *opkit_input(call_, i);
      if (tensor.dtype != OPKIT_UNDEFINED || i >= num_out) {
        AddInput(Present(i));
        continue;
      }
      if (is_gpu_)
        Throw(ErrorCode::kUnsupported, "no gradient reaches output ", i,
              ", and a GPU operator of a library for MXNet needs that of every output");
      const opkit_tensor& output = Present(num_out + num_in + i);
      const opkit_tensor zeros = Temporary(output.dtype, output.rank, output.shape);
      std::memset(zeros.data, 0,
                  Index(opkit_numel(&zeros)) * Index(ItemSize(static_cast<DType>(zeros.dtype))));
      AddInput(zeros);
    }
    for (uint64_t i = 0; i < num_in; ++i) {
      const opkit_tensor &output = *opkit_output(call_, i), &input = Present(num_out + i);
      AddOutput(output.req != OPKIT_REQ_NONE ? output
                                             : Temporary(input.dtype, input.rank, input.shape));
    }
  }

  // Infers the dtypes and shapes of the outputs from the inputs of the run.
  void InferOutputs() {
    std::vector<int> in_types = inputs_.types;
    std::vector<MxnetShape> in_shapes;
    for (size_t i = 0; i < in_types.size(); ++i)
      in_shapes.emplace_back(inputs_.shapes[i], inputs_.shapes[i] + inputs_.ranks[i]);
    out_types_.assign(storages_.outputs.size(), -1);
    out_shapes_.assign(storages_.outputs.size(), {});
    op_.InferTypes(attributes_, in_types, out_types_);
    op_.InferShapes(attributes_, in_shapes, out_shapes_);
    for (size_t i = 0; i < out_types_.size(); ++i)
      if (TypeOfMxnet(out_types_[i], "output", i) < 0)
        Throw(ErrorCode::kInvalidArgument, "inferType leaves the dtype of output ", i, " unknown");
  }

  // Makes the author's state at the first run, when the shapes and dtypes of the inputs are known.
  // A state belongs to these: other ones get a new state, as in MXNet.
  void MakeState(bool is_forward) {
    const size_t num_in = is_forward ? inputs_.data.size() : outputs_.data.size();
    const size_t first = is_forward ? 0 : (inputs_.data.size() - num_in) / 2;
    const auto same = [&](size_t i) {
      return state_types_[i] == inputs_.types[first + i] &&
             std::ranges::equal(state_shapes_[i],
                                std::span(inputs_.shapes[first + i],
                                          static_cast<size_t>(inputs_.ranks[first + i])));
    };
    bool known = state_ && state_types_.size() == num_in;
    for (size_t i = 0; known && i < num_in; ++i) known = same(i);
    if (known) return;
    if (state_ && is_gpu_)
      old_states_.push_back(std::exchange(state_, nullptr));  // the stream may still use it
    DestroyState(std::exchange(state_, nullptr));
    state_types_.assign(inputs_.types.begin() + static_cast<std::ptrdiff_t>(first),
                        inputs_.types.begin() + static_cast<std::ptrdiff_t>(first + num_in));
    state_shapes_.clear();
    for (size_t i = first; i < first + num_in; ++i)
      state_shapes_.emplace_back(inputs_.shapes[i], inputs_.shapes[i] + inputs_.ranks[i]);
    MxnetShapes shapes(state_shapes_);
    const MxnetApi& api = op_.api();
    InContext(
        [&] {
          api.Run([&] {
            return api->op_call_create_op_state(
                device_.create, attributes_.keys(), attributes_.values(), attributes_.size(),
                DeviceName(), call_->device_index, shapes.data(), shapes.ranks(),
                static_cast<int>(num_in), state_types_.data(), &state_);
          });
          if (!state_)
            Throw(ErrorCode::kOperatorFailed, "createOpState succeeded but made no state");
        },
        [&] { return StrCat("in createOpState of operator ", op_.name()); });
  }
  void DestroyState(void* state) {
    if (!state || !op_.api()->op_call_destroy_op_state) return;
    try {
      op_.api().RunVoid([&] { op_.api()->op_call_destroy_op_state(state); });
    } catch (const Error&) {  // the operator is gone, and with it the caller
    }
  }

  // Adds the tensors of an operator with inferSType. Its outputs have no memory yet.
  void AddSparse() {
    uint64_t first = 0;
    for (size_t i = 0; i < storages_.inputs.size(); ++i) {
      const MxnetStorage storage = storages_.inputs[i];
      for (uint64_t part = 0; part < MxnetParts(storage); ++part)
        static_cast<void>(Present(first + part));
      if (storage == MxnetStorage::kDense) {
        AddInput(*opkit_input(call_, first));
      } else {
        const MxnetSparse sparse = MxnetSparseInput(call_, first, storage, i);
        inputs_.Add(static_cast<const int64_t*>(sparse.shape->data),
                    static_cast<int>(sparse.shape->shape[0]), MxnetTypeOf(sparse.data->dtype),
                    sparse.data->data, DeviceName(), call_->device_index, version_);
        inputs_.storage.back() = static_cast<int>(storage);
        inputs_.indices.back() = sparse.indices->data;
        inputs_.num_indices.back() = sparse.indices->shape[0];
        inputs_.indptr.back() = sparse.indptr ? sparse.indptr->data : nullptr;
        inputs_.num_indptr.back() = sparse.indptr ? sparse.indptr->shape[0] : 0;
      }
      first += MxnetParts(storage);
    }
    InferOutputs();
    made_.assign(storages_.outputs.size(), false);
    for (size_t i = 0; i < storages_.outputs.size(); ++i) {
      void* memory = nullptr;
      if (storages_.outputs[i] == MxnetStorage::kDense) {
        const opkit_tensor* given = opkit_output(call_, PartOf(i));  // from inference, or none
        memory = given->req != OPKIT_REQ_NONE && given->dtype != OPKIT_UNDEFINED
                     ? given->data
                     : AllocateOutput(PartOf(i), out_types_[i], out_shapes_[i]).data;
      }
      outputs_.Add(out_shapes_[i].data(), static_cast<int>(out_shapes_[i].size()), out_types_[i],
                   memory, DeviceName(), call_->device_index, version_);
      outputs_.storage.back() = static_cast<int>(storages_.outputs[i]);
    }
  }
  // Adds the shapes of sparse outputs.
  void FinishSparse() {
    for (size_t i = 0; i < storages_.outputs.size(); ++i) {
      if (storages_.outputs[i] == MxnetStorage::kDense) continue;
      if (!made_[i])
        Throw(ErrorCode::kOperatorFailed, "it did not allocate sparse output ", i,
              " (OpResource::alloc_sparse)");
      const opkit_tensor shape =
          AllocateOutput(PartOf(i) + MxnetParts(storages_.outputs[i]) - 1, kInt64,
                         {static_cast<int64_t>(out_shapes_[i].size())});
      std::ranges::copy(out_shapes_[i], static_cast<int64_t*>(shape.data));
    }
  }
  // Returns the number of the first value of an output.
  uint64_t PartOf(size_t output) const {
    uint64_t first = 0;
    for (size_t i = 0; i < output; ++i) first += MxnetParts(storages_.outputs[i]);
    return first;
  }
  // `type` is MXNet's number. An output that the program does not need gets memory of the run.
  opkit_tensor AllocateOutput(uint64_t output, int type, const MxnetShape& shape) {
    const int32_t dtype = TypeOfMxnet(type, "output", output);
    const auto rank = static_cast<int32_t>(shape.size());
    if (opkit_output(call_, output)->req == OPKIT_REQ_NONE)
      return Temporary(dtype, rank, shape.data());
    opkit_tensor made{};
    made.size = sizeof made;
    AcceptAnswer(call_->host->allocate_output(call_, output, dtype, rank, shape.data(), &made),
                 call_->host);
    return made;
  }

  // Runs an allocation for the library. Keeps its failure, since no exception may pass through C.
  template <class Body>
  void Guard(Body body) noexcept {
    try {
      body();
    } catch (...) {
      if (!failure_) failure_ = std::current_exception();
    }
  }
  static void* AllocateOnGpu(void* self, int bytes) noexcept {
    auto& own = *static_cast<MxnetInstance*>(self);
    void* memory = nullptr;
    own.Guard([&] {
      if (!own.is_gpu_)
        Throw(ErrorCode::kFailedPrecondition, "alloc_gpu in a run on the CPU; call alloc_cpu");
      memory = OpResource(own.call_).alloc(bytes);
    });
    return memory;
  }
  static void* AllocateOnCpu(void* self, int bytes) noexcept {
    auto& own = *static_cast<MxnetInstance*>(self);
    void* memory = nullptr;
    own.Guard([&] {
      if (!own.is_gpu_) {
        memory = OpResource(own.call_).alloc(bytes);
        return;
      }
      // Kept with the operator: copies of the stream may read it later.
      if (bytes < 0) Throw(ErrorCode::kInvalidArgument, "alloc_cpu of ", bytes, " bytes");
      own.cpu_memory_.push_back(std::make_unique<char[]>(Index(bytes)));
      memory = own.cpu_memory_.back().get();
    });
    return memory;
  }
  static void AllocateSparse(void* self, int output, int num_indices, int num_indptr, void** data,
                             int64_t** indices, int64_t** indptr) noexcept {
    auto& own = *static_cast<MxnetInstance*>(self);
    own.Guard([&] {
      if (output < 0 || Index(output) >= own.made_.size() ||
          own.storages_.outputs[Index(output)] == MxnetStorage::kDense)
        Throw(ErrorCode::kInvalidArgument, "alloc_sparse for output ", output,
              ", which is no sparse output");
      if (num_indices < 0 || num_indptr < 0)
        Throw(ErrorCode::kInvalidArgument, "alloc_sparse of ", num_indices, " indices and ",
              num_indptr, " elements of indptr");
      const size_t i = Index(output);
      if (own.made_[i])
        Throw(ErrorCode::kFailedPrecondition, "alloc_sparse for output ", output, " twice");
      const bool csr = own.storages_.outputs[i] == MxnetStorage::kCsr;
      MxnetShape shape = {num_indices};
      if (!csr && !own.out_shapes_[i].empty())
        shape.insert(shape.end(), own.out_shapes_[i].begin() + 1, own.out_shapes_[i].end());
      const uint64_t first = own.PartOf(i);
      own.made_[i] = true;
      *data = own.AllocateOutput(first, own.out_types_[i], shape).data;
      *indices = static_cast<int64_t*>(own.AllocateOutput(first + 1, kInt64, {num_indices}).data);
      if (csr)
        *indptr = static_cast<int64_t*>(own.AllocateOutput(first + 2, kInt64, {num_indptr}).data);
    });
    // A library that ignores its own mistake writes to memory that nothing reads.
    if (!own.failure_) return;
    own.Guard([&] {
      int64_t elements = (std::max)({num_indices, num_indptr, 1});
      if (output >= 0 && Index(output) < own.out_shapes_.size())
        for (const int64_t extent : own.out_shapes_[Index(output)])
          elements *= (std::max)(extent, int64_t{1});
      *data = OpResource(own.call_).alloc<int64_t>(elements);
      *indices = OpResource(own.call_).alloc<int64_t>(elements);
      *indptr = OpResource(own.call_).alloc<int64_t>(elements);
    });
  }

  static constexpr int kInt64 = 6;  // MXNet's number

  const MxnetOperator& op_;
  const MxnetOperator::Device& device_;
  MxnetTextMap attributes_;
  MxnetStorages storages_;
  bool is_dense_ = true, is_gpu_ = false;
  MxnetRandomStates random_;
  void* state_ = nullptr;
  std::vector<void*> old_states_;
  std::vector<int> state_types_;
  std::vector<MxnetShape> state_shapes_;
  std::vector<std::unique_ptr<char[]>> cpu_memory_;
  // The current run.
  const opkit_call* call_ = nullptr;
  std::exception_ptr failure_;
  size_t version_ = 0;
  MxnetTensors inputs_, outputs_;
  std::vector<int> out_types_;
  std::vector<MxnetShape> out_shapes_;
  std::vector<char> made_;  // by output: alloc_sparse was called
};

}}}  // namespace opkit::detail

#endif  // OPKIT_INTEROP_MXNET_INSTANCE_HPP_
