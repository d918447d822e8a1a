// A library with layouts, a kernel that works in them, and a simulated accelerator: device
// "lib_npu", whose memory is the host's with every byte inverted, so that reading it there gives
// nonsense.
#include <opkit/core/layout_registry.hpp>
#include <opkit/opkit.hpp>
#include <opkit/plugin/author.hpp>

#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace {
using namespace opkit;  // NOLINT: as an author writes it

// "lib_reversed": from the last element to the first. "lib_spread": each with a gap behind it.
int64_t Reversed(int64_t i, int64_t n) { return n - 1 - i; }
int64_t Spread(int64_t i, int64_t) { return 2 * i; }
int64_t InOrder(int64_t i, int64_t) { return i; }
using PlaceOf = int64_t (*)(int64_t, int64_t);
template <PlaceOf kFrom, PlaceOf kTo>
void Move(const Tensor& from, Tensor& to) {
  const auto* in = static_cast<const float*>(from.raw_data());
  auto* out = static_cast<float*>(to.raw_mutable_data());
  for (int64_t i = 0; i < from.numel(); ++i) out[kTo(i, from.numel())] = in[kFrom(i, from.numel())];
}
const LayoutId kReversed = RegisterLayout({.name = "lib_reversed",
                                           .to_standard = &Move<Reversed, InOrder>,
                                           .from_standard = &Move<InOrder, Reversed>});
const LayoutId kSpread = RegisterLayout({.name = "lib_spread",
                                         .to_standard = &Move<Spread, InOrder>,
                                         .from_standard = &Move<InOrder, Spread>,
                                         .bytes = [](const Shape& shape, DType dtype) {
                                           return 2 * Tensor::CheckedBytes(shape, dtype);
                                         }});
const bool kDirect =
    (RegisterLayoutConverter(kReversed, kSpread, &Move<Reversed, Spread>, 0.01), true);

// y = 2 x, in the layouts that the node names; fails where it is given others.
class ScaledOp final : public Operator<CPUContext> {
 public:
  USE_OPERATOR_FUNCTIONS(CPUContext);
  using Operator<CPUContext>::Operator;
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    const auto in = query.def.args().Get<std::string>("in"),
               out = query.def.args().Get<std::string>("out");
    if (in == "none") throw UnsupportedOperatorFeature("it takes no node with in = none");
    KernelConfig config;
    const LayoutId number = in == "unregistered" ? LayoutId{77} : FindLayout(in);
    config.input_layouts = {Layout{number, {}}};
    config.output_layouts = {Layout{FindLayout(out), {}}};
    config.scratch_bytes = 256;
    config.cost_ns = 5;
    return {config};
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    if (x.layout() != InputLayout(0) || y->layout() != OutputLayout(0)) return false;
    auto* kept = static_cast<float*>(Scratch(256));
    const int64_t n = x.numel();
    const PlaceOf from = PlaceIn(x.layout()), to = PlaceIn(y->layout());
    for (int64_t i = 0; i < n; ++i) {
      kept[0] = 2 * static_cast<const float*>(x.raw_data())[from(i, n)];
      static_cast<float*>(y->raw_mutable_data())[to(i, n)] = kept[0];
    }
    return true;
  }

 private:
  static PlaceOf PlaceIn(const Layout& layout) {
    return layout.id == kReversed ? &Reversed : layout.id == kSpread ? &Spread : &InOrder;
  }
};

// y = x, or y = -x by the variant "negative".
class VariedOp final : public Operator<CPUContext> {
 public:
  VariedOp(const OperatorDef& def, Workspace* ws, const KernelConfig* config)
      : Operator<CPUContext>(def, ws, config),
        sign_(config && config->variant == "negative" ? -1.f : 1.f) {}
  static std::vector<KernelConfig> Propose(const KernelQuery& query) {
    std::vector<KernelConfig> configs(2);
    configs[1].variant = query.def.args().Get<std::string>("variant", "negative");
    return configs;
  }
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    for (int64_t i = 0; i < x.numel(); ++i)
      y->mutable_data<float>()[i] = sign_ * x.data<float>()[i];
    return true;
  }

 private:
  const float sign_;
};

constexpr auto kNpu = static_cast<DeviceType>(101);
class NpuContext : public CPUContext {
 public:
  static constexpr DeviceType kDeviceType = kNpu;
  explicit NpuContext(Device device) : device_(device) {}
  Device device() const { return device_; }

 private:
  Device device_;
};
class NpuAllocator final : public Allocator {
 public:
  const char* name() const override { return "lib_npu"; }

 protected:
  void* DoAllocate(int64_t bytes) override {
    return bytes > (1 << 20) ? nullptr : std::aligned_alloc(64, (Index(bytes) + 63) / 64 * 64);
  }
  void DoDeallocate(void* data, int64_t) noexcept override { std::free(data); }
  static size_t Index(int64_t i) { return static_cast<size_t>(i); }
};
void Inverted(void* to, Device, const void* from, Device, int64_t bytes, void*) {
  for (int64_t i = 0; i < bytes; ++i)
    static_cast<unsigned char*>(to)[i] =
        static_cast<unsigned char>(~static_cast<const unsigned char*>(from)[i]);
}
void AsItIs(void* to, Device, const void* from, Device, int64_t bytes, void*) {
  std::memcpy(to, from, static_cast<size_t>(bytes));
}
NpuAllocator allocator;
const bool kNpuIsThere = [] {
  RegisterDeviceType(kNpu, {"lib_npu", kNpu, false});
  SetAllocator(kNpu, &allocator);
  SetDeviceAvailability(kNpu, [](Device device) -> std::string {
    return device.index == 0 ? "" : "there is one card";
  });
  RegisterCopy(DeviceType::kCPU, kNpu, &Inverted);
  RegisterCopy(kNpu, DeviceType::kCPU, &Inverted);
  RegisterCopy(kNpu, kNpu, &AsItIs);
  return true;
}();

// y = x + 1 in the device's memory.
void AddOne(const void* x, void* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits = 0;
    float value = 0;
    std::memcpy(&bits, static_cast<const float*>(x) + i, 4);
    bits = ~bits;
    std::memcpy(&value, &bits, 4);
    value += 1;
    std::memcpy(&bits, &value, 4);
    bits = ~bits;
    std::memcpy(static_cast<float*>(y) + i, &bits, 4);
  }
}
class AddOneOp final : public Operator<NpuContext> {
 public:
  using Operator<NpuContext>::Operator;
  bool RunOnDevice() override {
    const Tensor& x = Input(0);
    Tensor* y = Output(0, x.shape(), x.dtype());
    AddOne(x.raw_data(), y->raw_mutable_data(), x.numel());
    return true;
  }
};

// The card's queue: what it is given is done in that order by a thread of its own, while it is let.
class NpuQueue {
 public:
  ~NpuQueue() {
    Let(true);  // a test that failed may have left it held
    Give({});
    if (thread_.joinable()) thread_.join();
  }
  void Give(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    if (work && !thread_.joinable()) thread_ = std::thread([this] { Work(); });
    work_.push_back(std::move(work));
    changed_.notify_one();
  }
  void Let(bool works) {
    const std::lock_guard lock(mutex_);
    works_ = works;
    changed_.notify_one();
  }

 private:
  void Work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return works_ && !work_.empty(); });
      const std::function<void()> next = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      if (!next) return;
      next();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  bool works_ = true;
  std::thread thread_;
};
NpuQueue queue;

}  // namespace

OPERATOR_SCHEMA(LibInLayouts)
    .NumInputs(1)
    .NumOutputs(1)
    .IdenticalTypeAndShape()
    .Arg<std::string>("in", "the layout that it takes", "standard")
    .Arg<std::string>("out", "the layout that it makes", "standard");
REGISTER_CPU_OPERATOR(LibInLayouts, ScaledOp);

OPERATOR_SCHEMA(LibVaried).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape().Arg<std::string>(
    "variant", "the name of its second way", "negative");
REGISTER_CPU_OPERATOR(LibVaried, VariedOp);

OPERATOR_SCHEMA(LibNpuAddOne).NumInputs(1).NumOutputs(1).IdenticalTypeAndShape();
OPKIT_REGISTER_DEVICE_OPERATOR(kNpu, LibNpuAddOne, AddOneOp);

// The same by the queue: forward returns when it has the work.
REGISTER_OP(LibNpuQueued)
    .input("x")
    .output("y")
    .async()
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; })
    .setForward(
        [](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out, OpResource& res) {
          auto done = std::make_shared<OpCompletion>(res.defer());
          queue.Give([x = in[0], y = out[0], done] {
            AddOne(x.raw_data(), y.raw_data(), x.size());
            done->Complete();
          });
        },
        "lib_npu");
// y = x; holds the queue where `works` is 0, and lets it go on where it is 1.
REGISTER_OP(LibNpuLet)
    .input("x")
    .output("y")
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; })
    .setForward([](const AttrMap& attrs, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource&) {
      queue.Let(attrs.Get<int>("works") != 0);
      out[0].data<float>()[0] = in[0].data<float>()[0];
    });
