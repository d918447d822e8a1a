// FunctionBody's definition: runs the functions of a record. A run lasts from the call of its
// functions until their memory is freed.
#ifndef OPKIT_OP_FUNCTION_IMPL_FUNCTION_BODY_IPP_
#define OPKIT_OP_FUNCTION_IMPL_FUNCTION_BODY_IPP_

#include <cstring>
#include <optional>

#include "opkit/op/function/function_body.hpp"
#include "opkit/op/function/impl/function_views.ipp"

namespace opkit { inline namespace OPKIT_INLINE_NAMESPACE { namespace detail {

// Runs the functions of a record for one operator.
class RecordBody final : public FunctionBody, public OutputMaker {
 public:
  RecordBody(OperatorBase& op, FunctionRecord record, FunctionPass pass, FunctionDevice& functions)
      : node_{op, std::move(record), pass, functions},
        views_(node_),
        run_(NewRun()),
        state_(node_) {}

  void SetReq(int output, OpReq req) override { views_.SetReq(output, req); }
  bool is_async() const override { return node_.record->Has(OPKIT_OP_ASYNC) && node_.is_forward(); }
  void SetLink(const FunctionDeviceLink& link) override {
    link_ = link;
    Connect(*run_);
  }

  void Run() override {
    if (is_async() && run_.use_count() > 1) [[unlikely]]
      run_ = NewRun();  // the last run was cancelled and still continues
    const Release release{*this};
    opkit_call& call = run_->call;
    std::memset(call.author, 0, sizeof call.author);
    run_->call.random_seed = seeds_.Next();
    if (!views_.AreBound()) [[unlikely]]
      views_.Bind(*run_, link_);
    if (call.scratch_bytes != 0) call.scratch = node_.op.Scratch(call.scratch_bytes);
    std::optional<MutexLock> use;
    if (Mutex* shared = state_.mutex()) [[unlikely]]
      use.emplace(*shared);
    if (state_.has_direct()) {
      const HostErrorScope message;
      const opkit_status status = CallGuarded([&] { return state_.CallDirect(&call); });
      if (status != OPKIT_OK) [[unlikely]]
        ThrowStatus(*node_.record, PassName(), status);
    } else {
      OpResource handle(&call);
      CallFunction(*node_.record, PassName(), [&] { return Call(handle); });
    }
    if (!run_->resource.pending.empty()) [[unlikely]]
      if (std::exception_ptr failure = run_->resource.AwaitPending())
        std::rethrow_exception(failure);
    views_.CheckMade();
    if (run_->resource.deferrable) [[unlikely]]
      return EndLater();
    if (run_->resource.used) [[unlikely]]
      AddUp();
  }

 private:
  // Releases the memory of the run at the end of the scope, also after an exception.
  struct Release {
    RecordBody& self;
    ~Release() {
      if (self.run_->resource.used) [[unlikely]]
        self.ReleaseMemory();
    }
  };

  const OpTensor& MakeOutput(size_t o, const Shape& shape, DType dtype) override {
    return views_.MakeOutput(*run_, o, shape, dtype);
  }
  const char* PassName() const { return node_.is_forward() ? "forward" : "backward"; }
  IntrusivePtr<FunctionRun> NewRun() {
    IntrusivePtr<FunctionRun> run = views_.NewRun();
    const OperatorDef& def = node_.op.def();
    seeds_.SetKey(StrCat(def.type(), " ", def.name(), " ", def.outputs()));
    run->resource.kept_by_work = {node_.record, node_.in_use};
    Connect(*run);
    return run;
  }
  // True if the function can make outputs. False if its work runs later, in the stream's thread.
  bool makes_outputs() const {
    return node_.is_forward() && node_.record->Has(OPKIT_OP_ALLOCATES_OUTPUTS) &&
           !(link_.asynchronous && link_.launch);
  }
  void Connect(FunctionRun& run) {
    run.resource.asynchronous = link_.asynchronous;
    run.resource.context = link_.context;
    run.resource.launch = link_.launch;
    run.resource.output_maker = makes_outputs() ? this : nullptr;
    run.resource.deferrable = is_async() && !link_.asynchronous ? &node_.op : nullptr;
    run.call.asynchronous = link_.asynchronous;
    run.call.stream = link_.stream;
  }

  OpStatus Call(OpResource& resource) {
    FunctionDevice& functions = node_.functions;
    if (functions.create_state)
      return state_.Run(node_, run_->input_views, run_->output_views, resource);
    return (node_.is_forward() ? functions.forward : functions.backward)(
        node_.attrs, run_->input_views, run_->output_views, resource);
  }

  void AddUp() {
    ResourceState& resource = run_->resource;
    for (const Addition& sum : resource.memory.additions) {
      if (!resource.asynchronous) {
        AddTensor(sum.target, sum.term);
      } else if (IsHostAccessible(node_.op.device().type)) {
        resource.launch(resource.context, [sum] { AddTensor(sum.target, sum.term); });
      } else {
        Throw(ErrorCode::kUnsupported, "results cannot be added up on ", node_.op.device(),
              "; write functions that respect OpReq::kAdd and say .acceptsAdd()");
      }
    }
  }
  // Ends the run of an asynchronous function that has returned: now, or later with its completion.
  OPKIT_COLD void EndLater() {
    if (!run_->resource.deferred) {
      AddUp();
      node_.op.event().state()->Complete(nullptr);
      return;
    }
    const IntrusivePtr<DeferredRun> deferred = std::move(run_->resource.deferred);
    KeepRun(*deferred);
    run_->resource.HandOver(deferred.get());
    deferred->Arrive();
  }
  void KeepRun(DeferredRun& deferred) const {
    deferred.kept = {run_, node_.record, node_.in_use};
    if (FunctionUse* use = node_.in_use.get()) {
      use->late_runs.fetch_add(1, std::memory_order_relaxed);
      deferred.count = &use->late_runs;
    }
    state_.KeepIn(deferred.kept);
  }
  // Frees the memory that the functions allocated; on a stream only after the issued work, which
  // may still use it.
  OPKIT_COLD void ReleaseMemory() noexcept {
    ResourceState& resource = run_->resource;
    resource.used = false;
    resource.AwaitPending();
    if (resource.deferred) [[unlikely]]
      Abandon();
    resource.memory.additions.clear();
    if (resource.memory.empty()) return;
    try {
      if (resource.asynchronous && resource.launch)
        resource.launch(resource.context, [memory = std::move(resource.memory)] {});
    } catch (...) {  // `launch` threw: the closure passed to it owned the memory and has freed it
    }
    resource.memory = {};
  }
  // Handles a function that failed after it took its completion handle. Another thread may still
  // use the handle, which then completes an event that nothing else uses.
  OPKIT_COLD void Abandon() noexcept {
    ResourceState& resource = run_->resource;
    const IntrusivePtr<DeferredRun> deferred = std::move(resource.deferred);
    try {
      deferred->event = MakeIntrusive<EventState>();
      resource.memory.additions.clear();
      resource.HandOver(deferred.get());
      KeepRun(*deferred);
      views_.KeepStorages(deferred->kept);
      deferred->Arrive();
    } catch (...) {  // out of memory: the completion handle stays without effect
    }
  }

  FunctionNode node_;
  FunctionViews views_;
  FunctionDeviceLink link_;
  RunSeeds seeds_;
  IntrusivePtr<FunctionRun> run_;
  FunctionStateHandle state_;  // destroyed before node_, which keeps the library's code
};

OPKIT_INLINE std::unique_ptr<FunctionBody> FunctionBody::Make(OperatorBase& op,
                                                              FunctionRecord record,
                                                              FunctionPass pass, size_t device) {
  FunctionDevice& functions = record->devices[device];
  return std::make_unique<RecordBody>(op, std::move(record), pass, functions);
}

}}}  // namespace opkit::detail

#endif  // OPKIT_OP_FUNCTION_IMPL_FUNCTION_BODY_IPP_
