// The export to XLA, through a fake of XLA: call frames without a host. xla_jax_test.py makes the
// same calls from JAX.
#include "opkit/export/xla.hpp"

#include <doctest/doctest.h>

#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "export/xla_operators.hpp"

namespace xla_test { namespace {

using namespace opkit;
namespace xla = opkit::detail::xla;

// Counts the threads of a loop.
template <class Context>
void XlaCountThreads(Context& ctx, In<"x", float> x, Out<"count", float> count) {
  std::set<std::thread::id> threads;
  std::mutex mutex;
  ParallelFor(
      ctx, x.size(),
      [&](int64_t) {
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
        std::this_thread::yield();
      },
      1);
  count[0] = static_cast<float>(threads.size());
}
OPKIT_OP(XlaCountThreads)
    .OutShape<"count">([](const InferenceContext&) { return Shape{1}; })
    .Kernel<CPUContext>();

}}  // namespace xla_test
OPKIT_EXPORT_XLA(XlaCountThreads);
namespace xla_test { namespace {

struct FakeError {
  xla::ErrorKind kind;
  std::string text;
};

// The things that the fake host has and has seen. A task of the pool runs in a thread of its own.
struct FakeXla {
  int64_t pool_threads = 0;  // 0: there is no pool
  int errors_alive = 0;
  bool schedules = true, makes_futures = true, takes_state = true;
  void* state = nullptr;
  void (*delete_state)(void*) = nullptr;
  std::vector<std::thread> threads;
  bool future_done = false;
  xla::Error* future_error = nullptr;

  ~FakeXla() {
    Join();
    if (state) delete_state(state);
  }
  // Tasks that wait for Join, if holds is set.
  bool holds = false;
  std::vector<std::pair<void (*)(void*), void*>> held;
  void Join() {
    for (const auto& [task, data] : std::exchange(held, {})) threads.emplace_back(task, data);
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }
};
FakeXla* g_host = nullptr;

xla::Error* NewError(xla::ErrorKind kind, std::string text) {
  ++g_host->errors_alive;
  return reinterpret_cast<xla::Error*>(new FakeError{kind, std::move(text)});
}

xla::Api MakeApi() {
  xla::Api api = xla::Sized(xla::Api{});
  api.error_create = [](xla::ErrorCreateArgs* args) { return NewError(args->kind, args->message); };
  api.error_destroy = [](xla::ErrorDestroyArgs* args) {
    --g_host->errors_alive;
    delete reinterpret_cast<FakeError*>(args->error);
  };
  api.state_set = [](xla::StateArgs* args) -> xla::Error* {
    if (!g_host->takes_state) return NewError(xla::ErrorKind::kInternal, "takes no state");
    g_host->state = args->state;
    return nullptr;
  };
  api.state_get = [](xla::StateArgs* args) {
    args->state = g_host->state;
    return args->state ? nullptr : NewError(xla::ErrorKind::kNotFound, "no state");
  };
  api.thread_pool_num_threads = [](xla::ThreadPoolNumThreadsArgs* args) {
    *args->num_threads = g_host->pool_threads;
    return g_host->pool_threads ? nullptr : NewError(xla::ErrorKind::kUnimplemented, "no pool");
  };
  api.thread_pool_schedule = [](xla::ThreadPoolScheduleArgs* args) -> xla::Error* {
    if (!g_host->schedules) return NewError(xla::ErrorKind::kInternal, "takes no task");
    if (g_host->holds)
      g_host->held.emplace_back(args->task, args->data);
    else
      g_host->threads.emplace_back(args->task, args->data);
    return nullptr;
  };
  api.future_create = [](xla::FutureCreateArgs* args) -> xla::Error* {
    if (!g_host->makes_futures) return NewError(xla::ErrorKind::kInternal, "makes no future");
    args->future = reinterpret_cast<xla::Future*>(g_host);
    return nullptr;
  };
  api.future_set_available = [](xla::FutureSetAvailableArgs* args) -> xla::Error* {
    reinterpret_cast<FakeXla*>(args->future)->future_done = true;
    return nullptr;
  };
  api.future_set_error = [](xla::FutureSetErrorArgs* args) -> xla::Error* {
    reinterpret_cast<FakeXla*>(args->future)->future_error = args->error;
    return nullptr;
  };
  api.stream_get = [](xla::StreamGetArgs* args) -> xla::Error* {
    args->stream = g_host;
    return nullptr;
  };
  api.device_ordinal_get = [](xla::DeviceOrdinalGetArgs* args) -> xla::Error* {
    args->ordinal = 0;
    return nullptr;
  };
  return api;
}

// A call of a handler, with arguments and results of the tests.
class Call {
 public:
  explicit Call(FakeXla& host) {
    g_host = &host;
    frame_.api = &api_;
    frame_.stage = xla::Stage::kExecute;
  }
  template <class T>
  Call& Arg(xla::DataType type, std::vector<T>& values) {
    return Add(args_, type, values.data(), static_cast<int64_t>(values.size()));
  }
  template <class T>
  Call& Ret(xla::DataType type, std::vector<T>& values) {
    return Add(rets_, type, values.data(), static_cast<int64_t>(values.size()));
  }
  Call& Attr(const std::string& name, float value) {
    floats_[name] = value;
    scalars_[name] = {xla::DataType::kF32, &floats_[name]};
    return *this;
  }
  Call& At(xla::Stage stage) {
    frame_.stage = stage;
    return *this;
  }
  // Returns the error as "kind: text"; "" for success.
  std::string Run(xla::Error* (*handler)(xla::CallFrame*)) {
    Fill(frame_.args, args_, arg_pointers_);
    Fill(frame_.rets, rets_, ret_pointers_);
    for (auto& [name, scalar] : scalars_) {
      names_.push_back({name.data(), name.size()});
      kinds_.push_back(xla::AttributeKind::kScalar);
      values_.push_back(&scalar);
    }
    for (xla::ByteSpan& name : names_) name_pointers_.push_back(&name);
    frame_.attrs = xla::Sized(xla::Attributes{{},
                                              static_cast<int64_t>(kinds_.size()),
                                              kinds_.data(),
                                              name_pointers_.data(),
                                              values_.data()});
    return TextOf(handler(&frame_));
  }
  static std::string TextOf(xla::Error* error) {
    if (!error) return "";
    auto* fake = reinterpret_cast<FakeError*>(error);
    std::string text = StrCat(static_cast<int>(fake->kind), ": ", fake->text);
    auto args = xla::Sized(xla::ErrorDestroyArgs{{}, error});
    MakeApi().error_destroy(&args);
    return text;
  }
  // Does what XLA does once the handler has returned: other calls use the descriptions.
  void Reuse() {
    for (std::vector<Tensor>* tensors : {&args_, &rets_})
      for (Tensor& tensor : *tensors) tensor = {xla::Sized(xla::Buffer{}), 0};
  }
  bool returned_future() const { return frame_.future; }

 private:
  struct Tensor {
    xla::Buffer buffer;
    int64_t size;
  };
  Call& Add(std::vector<Tensor>& to, xla::DataType type, void* data, int64_t size) {
    to.push_back({xla::Sized(xla::Buffer{{}, type, data, 1, nullptr}), size});
    return *this;
  }
  static void Fill(xla::Values& values, std::vector<Tensor>& tensors,
                   std::vector<void*>& pointers) {
    for (Tensor& tensor : tensors) {
      tensor.buffer.dims = &tensor.size;
      pointers.push_back(&tensor.buffer);
    }
    values =
        xla::Sized(xla::Values{{}, static_cast<int64_t>(tensors.size()), nullptr, pointers.data()});
  }

  xla::Api api_ = MakeApi();
  xla::CallFrame frame_ = xla::Sized(xla::CallFrame{});
  std::vector<Tensor> args_, rets_;
  std::vector<void*> arg_pointers_, ret_pointers_, values_;
  std::map<std::string, float> floats_;
  std::map<std::string, xla::Scalar> scalars_;
  std::vector<xla::ByteSpan> names_;
  std::vector<xla::ByteSpan*> name_pointers_;
  std::vector<xla::AttributeKind> kinds_;
};

constexpr auto kF32 = xla::DataType::kF32;
constexpr auto kS32 = xla::DataType::kS32;

TEST_CASE("XLA learns a handler's version") {
  xla::Metadata metadata{sizeof(xla::Metadata), {}, 1, {}};
  xla::MetadataExtension extension{
      {sizeof(xla::MetadataExtension), xla::ExtensionType::kMetadata, nullptr}, &metadata};
  xla::CallFrame frame{};
  frame.extensions = &extension;
  CHECK(opkit_xla_XlaAxpy(&frame) == nullptr);
  CHECK(metadata.version.major_version == 0);
  CHECK(metadata.version.minor_version == 3);
  CHECK(metadata.traits == 0);
}

TEST_CASE("a call writes XLA's results, with attributes given and by default") {
  FakeXla host;
  std::vector<float> x{0, 1, 2}, y{1, 1, 1}, z(3);
  CHECK(Call(host).Arg(kF32, x).Arg(kF32, y).Ret(kF32, z).Run(opkit_xla_XlaAxpy) == "");
  CHECK(z == std::vector<float>{1, 2, 3});
  for (const float alpha : {2.f, 3.f, 2.f}) {
    CHECK(Call(host)
              .Arg(kF32, x)
              .Arg(kF32, y)
              .Ret(kF32, z)
              .Attr("alpha", alpha)
              .Run(opkit_xla_XlaAxpy) == "");
    CHECK(z == std::vector<float>{1, 1 + alpha, 1 + 2 * alpha});
  }
  std::vector<int32_t> a{1, 2}, b{10, 20}, c(2);
  CHECK(Call(host).Arg(kS32, a).Arg(kS32, b).Ret(kS32, c).Run(opkit_xla_XlaAxpy) == "");
  CHECK(c == std::vector<int32_t>{11, 22});
  CHECK(host.errors_alive == 0);
}

TEST_CASE("a wrong call is an error with a code, and writes nothing") {
  FakeXla host;
  std::vector<float> x{0, 1, 2}, y{1, 1, 1}, z{7, 7, 7}, large{7, 7, 7, 7};
  std::vector<double> doubles{7, 7, 7};
  CHECK(Call(host).Arg(kF32, x).Arg(kF32, y).Ret(kF32, large).Run(opkit_xla_XlaAxpy) ==
        "3: output 0 'z' of XlaAxpy is given as float32[4], but the result is float32[3]; give a "
        "tensor of this type");
  CHECK(Call(host)
            .Arg(kF32, x)
            .Arg(kF32, y)
            .Ret(xla::DataType::kF64, doubles)
            .Run(opkit_xla_XlaAxpy)
            .starts_with("3: output 0 'z' of XlaAxpy is given as float64[3], but"));
  CHECK(Call(host)
            .Arg(kF32, x)
            .Arg(kF32, y)
            .Ret(kF32, z)
            .Attr("alpah", 2)
            .Run(opkit_xla_XlaAxpy)
            .find("did you mean 'alpha'") != std::string::npos);
  CHECK(Call(host)
            .Arg(static_cast<xla::DataType>(20), x)
            .Arg(kF32, y)
            .Ret(kF32, z)
            .Run(opkit_xla_XlaAxpy)
            .starts_with("12: XLA's element type 20 is not a dtype"));
  CHECK(large == std::vector<float>{7, 7, 7, 7});
  CHECK(doubles == std::vector<double>{7, 7, 7});
  CHECK(z == std::vector<float>{7, 7, 7});
  const std::string error =
      Call(host).Arg(kF32, x).Arg(kF32, y).Ret(kF32, z).Attr("alpha", 2e9f).Run(opkit_xla_XlaAxpy);
  CHECK_MESSAGE(error.starts_with("11: alpha is 2e+09"), error);
  CHECK(host.errors_alive == 0);
}

TEST_CASE("XLA sees a wrong attribute when it makes its program") {
  FakeXla host;
  CHECK(Call(host).At(xla::Stage::kInstantiate).Attr("alpha", 2).Run(opkit_xla_XlaAxpy) == "");
  CHECK(Call(host)
            .At(xla::Stage::kInstantiate)
            .Attr("alpah", 2)
            .Run(opkit_xla_XlaAxpy)
            .find("did you mean 'alpha'") != std::string::npos);
  CHECK(Call(host).At(xla::Stage::kPrepare).Run(opkit_xla_XlaAxpy) == "");
  CHECK(host.state == nullptr);
}

TEST_CASE("XLA keeps the state of a stateful operator") {
  FakeXla host;
  host.delete_state = opkit_xla_type_info_XlaRunningSum.deleter;
  std::vector<float> x{0, 1, 2}, sum(3);
  const std::string refused = Call(host).Arg(kF32, x).Ret(kF32, sum).Run(opkit_xla_XlaRunningSum);
  CHECK_MESSAGE(refused.starts_with("9: operator XlaRunningSum keeps state"), refused);
  CHECK(refused.find("\"instantiate\"") != std::string::npos);
  opkit_xla_type_id_XlaRunningSum.value = 0;
  CHECK(Call(host)
            .At(xla::Stage::kInstantiate)
            .Run(opkit_xla_XlaRunningSum)
            .find("call jax.ffi.register_ffi_type with opkit_xla_type_id_XlaRunningSum") !=
        std::string::npos);
  opkit_xla_type_id_XlaRunningSum.value = 42;
  CHECK(Call(host).At(xla::Stage::kInstantiate).Run(opkit_xla_XlaRunningSum) == "");
  for (float k = 1; k <= 3; ++k) {
    CHECK(Call(host).Arg(kF32, x).Ret(kF32, sum).Run(opkit_xla_XlaRunningSum) == "");
    CHECK(sum == std::vector<float>{0, k, 2 * k});
  }
  CHECK(host.errors_alive == 0);
}

TEST_CASE("loops run on XLA's threads") {
  FakeXla host;
  host.pool_threads = 4;
  std::vector<float> x(10'000, 2), y(10'000, 1), z(10'000);
  CHECK(Call(host).Arg(kF32, x).Arg(kF32, y).Ret(kF32, z).Run(opkit_xla_XlaAxpy) == "");
  CHECK(z == std::vector<float>(10'000, 3));
  CHECK(host.threads.size() == 3);  // the fourth is the caller
}

TEST_CASE("a later call returns before its work is done, and completes XLA's future") {
  FakeXla host;
  host.pool_threads = 2;
  std::vector<float> x{0, 1, 2}, y{1, 1, 1}, z(3);
  Call call(host), wrong(host);
  CHECK(call.Arg(kF32, x).Arg(kF32, y).Ret(kF32, z).Run(opkit_xla_later_XlaAxpy) == "");
  CHECK(call.returned_future());
  host.Join();
  CHECK(host.future_done);
  CHECK(z == std::vector<float>{1, 2, 3});

  wrong.Arg(kF32, x).Arg(kF32, y).Ret(kF32, z).Attr("alpha", 2e9f).Run(opkit_xla_later_XlaAxpy);
  host.Join();
  CHECK(Call::TextOf(host.future_error).starts_with("11: alpha is 2e+09"));
  CHECK(host.errors_alive == 0);
}

TEST_CASE("a later call does not read XLA's call frame after the handler has returned") {
  FakeXla host;
  host.pool_threads = 2;
  host.holds = true;
  std::vector<float> x{0, 1, 2}, y{1, 1, 1}, z(3);
  Call call(host);
  CHECK(call.Arg(kF32, x).Arg(kF32, y).Ret(kF32, z).Run(opkit_xla_later_XlaAxpy) == "");
  call.Reuse();
  host.Join();
  CHECK(host.future_done);
  CHECK(z == std::vector<float>{1, 2, 3});
}

TEST_CASE("the loops of a later call run in its thread") {
  FakeXla host;
  host.pool_threads = 4;
  std::vector<float> x(1000), count(1);
  Call call(host);
  CHECK(call.Arg(kF32, x).Ret(kF32, count).Run(opkit_xla_later_XlaCountThreads) == "");
  host.Join();
  CHECK(host.future_done);
  CHECK(count[0] == 1);
}

// The sanitizers' configuration finds what is not deleted here.
TEST_CASE("a refusal of XLA is the call's error, or costs only speed") {
  FakeXla host;
  host.pool_threads = 4;
  std::vector<float> x(10'000, 2), z(10'000);
  const auto run = [&](auto* handler) {
    return Call(host).Arg(kF32, x).Arg(kF32, x).Ret(kF32, z).Run(handler);
  };
  host.schedules = false;
  CHECK(run(opkit_xla_XlaAxpy) == "");
  CHECK(z == std::vector<float>(10'000, 4));
  z[0] = 0;
  CHECK(run(opkit_xla_later_XlaAxpy) == "");
  CHECK(host.future_done);
  CHECK(z[0] == 4);
  host.makes_futures = false;
  Call call(host);
  CHECK(call.Arg(kF32, x).Arg(kF32, x).Ret(kF32, z).Run(opkit_xla_later_XlaAxpy) ==
        "13: makes no future");
  CHECK(!call.returned_future());
  host.takes_state = false;
  opkit_xla_type_id_XlaRunningSum.value = 42;
  CHECK(Call(host).At(xla::Stage::kInstantiate).Run(opkit_xla_XlaRunningSum) ==
        "13: takes no state");
  CHECK(host.errors_alive == 0);
}

TEST_CASE("a call on CUDA without a kernel for CUDA is an error") {
  FakeXla host;
  std::vector<float> x{0}, z(1);
  const std::string error =
      Call(host).Arg(kF32, x).Arg(kF32, x).Ret(kF32, z).Run(opkit_xla_cuda_XlaAxpy);
  CHECK_MESSAGE(error.starts_with("5: operator XlaAxpy (x, y) -> (z) has no kernel for cuda"),
                error);
  // XLA sees it when it makes its program.
  CHECK(Call(host).At(xla::Stage::kInstantiate).Run(opkit_xla_cuda_XlaAxpy) == error);
}

}}  // namespace xla_test
