// A run of a function operator, from the call of its functions to the end of the memory they were
// given.
#ifndef OPKIT_OP_FUNCTION_IMPL_FUNCTION_BODY_IPP_
#define OPKIT_OP_FUNCTION_IMPL_FUNCTION_BODY_IPP_

#include <cstring>
#include <optional>

#include "opkit/op/function/function_body.hpp"
#include "opkit/op/function/function_views.hpp"

namespace opkit::inline OPKIT_ABI {
namespace detail {

class RecordBody final : public FunctionBody {
 public:
  RecordBody(OperatorBase& op, FunctionRecord record, FunctionPass pass)
      : node_{op, std::move(record), pass}, views_(node_), run_(NewRun()), state_(node_) {}

  void SetReq(int output, OpReq req) override { views_.SetReq(output, req); }
  bool is_async() const override { return node_.record->Has(OPKIT_OP_ASYNC) && node_.is_forward(); }
  void SetLink(const FunctionDeviceLink& link) override {
    link_ = link;
    Connect(*run_);
  }

  void Run() override {
    if (is_async() && run_.use_count() > 1) [[unlikely]]
      run_ = NewRun();  // the last one was cancelled and still goes on
    const Release release{*this};
    opkit_call& call = run_->call;
    std::memset(call.author, 0, sizeof call.author);
    StartRandom();
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
    if (run_->resource.deferrable) [[unlikely]]
      return EndLater();
    if (run_->resource.used) [[unlikely]]
      AddUp();
  }

 private:
  struct Release {
    RecordBody& self;
    ~Release() {
      if (self.run_->resource.used) [[unlikely]]
        self.ReleaseMemory();
    }
  };

  const char* PassName() const { return node_.is_forward() ? "forward" : "backward"; }
  IntrusivePtr<FunctionRun> NewRun() {
    IntrusivePtr<FunctionRun> run = views_.NewRun();
    const OperatorDef& def = node_.op.def();
    random_key_ = 0;
    for (char c : StrCat(def.type(), " ", def.name(), " ", def.outputs()))
      random_key_ = MixBits(random_key_ ^ static_cast<unsigned char>(c));
    run->resource.kept_by_work = {node_.record, node_.in_use};
    Connect(*run);
    return run;
  }
  void Connect(FunctionRun& run) {
    run.resource.asynchronous = link_.asynchronous;
    run.resource.context = link_.context;
    run.resource.launch = link_.launch;
    run.resource.deferrable = is_async() && !link_.asynchronous ? &node_.op : nullptr;
    run.call.asynchronous = link_.asynchronous;
    run.call.stream = link_.stream;
  }

  // Runs count from the last SetSeed on.
  void StartRandom() {
    const uint64_t epoch = g_random_seed.epoch.load(std::memory_order_relaxed);
    if (epoch != random_epoch_) [[unlikely]] {
      next_seed_ = MixBits(g_random_seed.seed.load(std::memory_order_relaxed) ^ random_key_);
      random_epoch_ = epoch;
    }
    run_->call.random_seed = next_seed_++;
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
              "; write functions that respect OpReq::kAdd and say .setAcceptAdd()");
      }
    }
  }
  // The function has returned; its run ends here, or with its completion.
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
    if (auto op = state_.op()) deferred.kept.push_back(op);
  }
  // On a stream, work that was issued may still use the memory that the functions allocated.
  OPKIT_COLD void ReleaseMemory() noexcept {
    ResourceState& resource = run_->resource;
    resource.used = false;
    if (resource.deferred) [[unlikely]]
      Abandon();
    resource.memory.additions.clear();
    if (resource.memory.empty()) return;
    try {
      if (resource.asynchronous && resource.launch)
        resource.launch(resource.context, [memory = std::move(resource.memory)] {});
    } catch (...) {  // no memory to wait with: the memory freed here was lost anyway
    }
    resource.memory.Clear();
  }
  // The function has failed after it took its completion, which may still be on its way: it then
  // ends nothing.
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
    } catch (...) {  // no memory: the completion ends nothing
    }
  }

  FunctionNode node_;
  FunctionViews views_;
  FunctionDeviceLink link_;
  uint64_t random_key_ = 0, random_epoch_ = 0, next_seed_ = 0;
  IntrusivePtr<FunctionRun> run_;
  FunctionStateHandle state_;  // destroyed first: its code may be a library's, which node_ keeps
};

OPKIT_INLINE std::unique_ptr<FunctionBody> FunctionBody::Make(OperatorBase& op,
                                                              FunctionRecord record,
                                                              FunctionPass pass) {
  return std::make_unique<RecordBody>(op, std::move(record), pass);
}

}  // namespace detail
}  // namespace opkit

#endif  // OPKIT_OP_FUNCTION_IMPL_FUNCTION_BODY_IPP_
