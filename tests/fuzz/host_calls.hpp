// Calls of the host's table and of a gradient maker as a careless library makes them, with valid
// arguments and with wrong ones that the host can detect. Pointers are null or valid, and arrays
// have as many elements as their counts say, unless the host must refuse the count itself. Aborts
// if a valid call has another effect than the ABI says.
#ifndef OPKIT_TESTS_FUZZ_HOST_CALLS_HPP_
#define OPKIT_TESTS_FUZZ_HOST_CALLS_HPP_

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "fuzz_bytes.hpp"
#include "opkit/abi/opkit_abi.h"
#include "opkit/graph/abi_graph.hpp"

inline const opkit_host* g_host = nullptr;
inline void Require(bool holds) {
  if (!holds) std::abort();
}
// Counts that the host refuses before it reads the array: each is more than a graph may have. A
// smaller wrong count cannot be detected.
inline constexpr uint64_t kAbsurdCounts[] = {uint64_t{1} << 32, opkit::detail::kMostNodes + 1,
                                             UINT64_MAX};

// A view of memory of the library's, sometimes wrong.
struct AnyView {
  alignas(16) char elements[128] = {};  // of three elements of any type, two steps apart
  int64_t shape[40], strides[40];
  opkit_tensor view{};

  AnyView() {
    for (int64_t& extent : shape) extent = 1;
    for (int64_t& stride : strides) stride = 1;
    shape[0] = 3;
    view.size = sizeof view;
    view.data = elements;
    view.shape = shape;
    view.strides = strides;
    view.rank = 1;
    view.dtype = OPKIT_FLOAT32;
    view.device_type = OPKIT_CPU;
    switch (In().Byte() % 24) {
      case 23:
        view.size = In().Of({uint64_t{0}, uint64_t{8}, uint64_t{64}, uint64_t{71}});
        break;
      case 22:
        view.dtype = In().Of({-1, 0, 16, 77, INT32_MIN, INT32_MAX, 1, 3, 13, 15});
        break;
      case 21:
        view.rank = In().Of({-1, 33, INT32_MAX, INT32_MIN, 0, 2, 7, 32});
        break;
      case 20:
        shape[0] = In().Of({int64_t{-1}, int64_t{INT64_MIN}, int64_t{0}, int64_t{1}});
        break;
      case 19:  // more than there can be, of which a stride of 0 needs no memory
        shape[0] = INT64_MAX;
        strides[0] = In().Of({int64_t{0}, int64_t{1}, int64_t{INT64_MAX}});
        view.rank = In().Of({1, 2, 32});
        break;
      case 18:
        strides[0] = In().Of({int64_t{2}, int64_t{0}, int64_t{INT64_MAX}, int64_t{INT64_MIN}});
        break;
      case 17:  // from the last one back
        strides[0] = -1;
        view.data = elements + 8;
        break;
      case 16:
        view.data = nullptr;
        break;
      case 15:
        view.shape = nullptr;
        break;
      case 14:
        view.strides = nullptr;
        break;
      case 13:
        view.device_type = In().Of({0, -1, 2, 10, 64, 77, INT32_MAX});
        break;
      case 12:
        view.device_index = In().Of({-1, 1, INT32_MAX});
        break;
      case 11:
        view.req = In().Small();
        view.reserved = In().Small();
        break;
      default:
        break;
    }
  }
  AnyView(const AnyView&) = delete;
  AnyView& operator=(const AnyView&) = delete;
};

// Owns the arguments of one call and frees them after it, so that the sanitizer finds a later read.
class Parts {
 public:
  // An array and its count, sometimes null, with a null element or absurdly counted.
  template <class T>
  const T* const* Array(std::vector<const T*> elements, uint64_t& count) {
    count = elements.size();
    if (!elements.empty() && In().Rarely()) elements[In().Byte() % elements.size()] = nullptr;
    auto* kept = Keep(new std::vector<const T*>(std::move(elements)));
    if (In().Rarely()) {
      count = In().RightOr(count, kAbsurdCounts);
      return nullptr;
    }
    if (count > 0 && In().Rarely()) count = In().Of(kAbsurdCounts);
    return kept->data();
  }

  const opkit_tensor* View() { return &Keep(new AnyView)->view; }

  const opkit_attr* Attr() {
    struct Attribute {
      opkit_attr attr{};
      int64_t ints[3] = {1, 0, INT64_MIN};
      double floats[3] = {0.5, 2, 1e300};
      const char* strings[3] = {"", "bc", "x"};
      uint64_t string_sizes[3] = {0, 2, 1};
      const opkit_tensor* tensors[3] = {};
    };
    auto* made = Keep(new Attribute);
    opkit_attr& attr = made->attr;
    Bytes& in = In();
    attr.size = in.RightOr(uint64_t{sizeof attr}, {uint64_t{0}, uint64_t{8}, uint64_t{87}});
    const char* const kNames[] = {"", nullptr, "alpha", "\xff", "__state"};
    attr.name = in.RightOr<const char*>("p", kNames);
    attr.type = in.RightOr(in.Byte() % 10, {-1, 10, INT32_MAX, INT32_MIN});
    attr.count = attr.type < OPKIT_ATTR_INTS ? 1 : in.Byte() % 4;
    if (in.Rarely()) attr.count = in.Of({uint64_t{0}, uint64_t{2}, uint64_t{3}});
    if (in.Rarely()) attr.count = in.Of(kAbsurdCounts);
    if (attr.type % 5 == OPKIT_ATTR_TENSOR)
      for (const opkit_tensor*& tensor : made->tensors) tensor = in.Rarely() ? nullptr : View();
    made->strings[in.Byte() % 3] = in.Mostly<const char*>("ab", nullptr);
    attr.ints = in.Rarely() ? nullptr : made->ints;
    attr.floats = in.Rarely() ? nullptr : made->floats;
    attr.strings = in.Rarely() ? nullptr : made->strings;
    attr.string_sizes = in.Rarely() ? nullptr : made->string_sizes;
    attr.tensors = in.Rarely() ? nullptr : made->tensors;
    attr.text = in.Mostly<const char*>("1", nullptr);
    return &attr;
  }
  const opkit_attr* const* Attrs(uint64_t& count) {
    std::vector<const opkit_attr*> attrs;
    const uint8_t how = In().Byte() % 8;
    for (int n = how < 4 ? 0 : how - 3; n > 0; --n) attrs.push_back(Attr());
    return Array(std::move(attrs), count);
  }

  const char* const* Names(std::vector<const char*> names, uint64_t& count) {
    const char* const kNames[] = {"z", "x", "y", "dy", "", "x_grad", "\xff"};
    for (int n = In().Byte() % 16; n > 13; --n) names.push_back(In().Of(kNames));
    if (!names.empty() && In().Rarely()) names.pop_back();
    return Array(std::move(names), count);
  }
  // Makes a node that computes `output` from `input`.
  const opkit_node* Node(const char* input, const char* output, int depth = 0) {
    auto* node = Keep(new opkit_node{});
    Bytes& in = In();
    node->size = in.RightOr(uint64_t{sizeof *node}, {uint64_t{0}, uint64_t{8}, uint64_t{103}});
    const char* const kOps[] = {"FuzzedA", "If", "Identity", "", "Nothing", nullptr};
    node->op = in.Byte() % 4 == 3 ? in.Of(kOps) : "Neg";
    node->name = in.Mostly<const char*>("n", nullptr);
    node->device_type = in.RightOr(int32_t{OPKIT_CPU}, {0, -1, 2, 64, 77, INT32_MAX});
    node->device_index = in.RightOr(0, {-1, 1, INT32_MAX});
    node->inputs = Names({input}, node->num_inputs);
    node->outputs = Names({output}, node->num_outputs);
    node->attrs = Attrs(node->num_attrs);
    std::vector<const opkit_graph*> graphs;
    if (depth < 2 && in.Byte() % 4 == 3)
      for (const char* name : {"then_branch", "else_branch"}) graphs.push_back(Graph(name, depth));
    node->graphs = Array(std::move(graphs), node->num_graphs);
    return node;
  }
  const opkit_graph* Graph(const char* name, int depth) {
    auto* graph = Keep(new opkit_graph{});
    Bytes& in = In();
    graph->size = in.RightOr(uint64_t{sizeof *graph}, {uint64_t{0}, uint64_t{8}, uint64_t{95}});
    graph->name = in.Mostly<const char*>(name, nullptr);
    graph->inputs = Names({}, graph->num_inputs);
    graph->outputs = Names({"b"}, graph->num_outputs);
    uint64_t num_names = 0;
    graph->constant_names = Names({"a"}, num_names);
    graph->constants = Array<opkit_tensor>({View(), View(), View()}, graph->num_constants);
    // Both arrays have as many elements as there are names, but where a count is absurd.
    if (num_names < 3 && graph->num_constants == 3) graph->num_constants = num_names;
    if (num_names > 3) graph->num_constants = num_names;
    std::vector<const opkit_node*> nodes = {Node("a", "b", depth + 1)};
    if (in.Rarely()) nodes.push_back(Node("b", "c", depth + 1));
    graph->nodes = Array(std::move(nodes), graph->num_nodes);
    return graph;
  }

 private:
  template <class T>
  T* Keep(T* made) {
    kept_.emplace_back(made, [](void* one) { delete static_cast<T*>(one); });
    return made;
  }
  std::vector<std::unique_ptr<void, void (*)(void*)>> kept_;
};

// Texts with sizes: without all of it, with the zero behind it, none.
template <class F>
void WithText(F&& f) {
  switch (In().Byte() % 6) {
    case 0:
      return f("told", 4);
    case 1:
      return f("told", In().Byte() % 6);
    case 2:
      return f("a\0b\xff\n", 5);
    case 3:
      return f(nullptr, 0);
    case 4:
      return f(nullptr, static_cast<uint64_t>(In().Number()));
    default:
      return f("", 0);
  }
}

// A loop, and which indices it has come by.
struct Loop {
  opkit_status status = OPKIT_OK;
  bool nested = false;
  std::vector<std::atomic<int>> seen;

  explicit Loop(size_t counted) : seen(counted) {}
  static opkit_status Run(void* context, int64_t begin, int64_t end) {
    auto& self = *static_cast<Loop*>(context);
    Require(begin < end);
    for (int64_t i = begin; i < end && i < static_cast<int64_t>(self.seen.size()); ++i)
      ++self.seen[static_cast<size_t>(i)];
    if (self.nested) {
      Loop inner(5);
      Require(g_host->parallel_for(nullptr, 5, 2, &Loop::Run, &inner) == OPKIT_OK);
      for (const std::atomic<int>& times : inner.seen) Require(times == 1);
    }
    if (self.status != OPKIT_OK) g_host->set_error(self.status, "in a loop", 9);
    return self.status;
  }
};
inline void CallParallelFor(const opkit_call* call) {
  constexpr int64_t kExtents[] = {7, 1, 1000, 0, -1, INT64_MIN, INT64_MAX};
  constexpr int64_t kGrains[] = {1, 3, 64, 0, 2000, -1, INT64_MIN, INT64_MAX};
  const int64_t n = In().Of(kExtents);
  int64_t grain = In().Of(kGrains);
  if (n == INT64_MAX) grain = INT64_MAX / 4;  // not one by one until the end of time
  const int64_t counted = n > 0 && n <= 1000 ? n : 0;
  Loop loop(static_cast<size_t>(counted));
  loop.status = In().Byte() % 4 == 3 ? static_cast<opkit_status>(In().Number()) : OPKIT_OK;
  loop.nested = counted <= 7 && In().Rarely();
  const bool null_body = In().Rarely();
  const opkit_status status = g_host->parallel_for(In().Mostly<const opkit_call*>(call, nullptr), n,
                                                   grain, null_body ? nullptr : &Loop::Run, &loop);
  if (null_body) return Require(status != OPKIT_OK || n <= 0);
  Require(status == (n > 0 ? loop.status : OPKIT_OK));
  if (status != OPKIT_OK) Require(std::strcmp(g_host->failure_text(), "in a loop") == 0);
  if (status == OPKIT_OK)
    for (const std::atomic<int>& times : loop.seen) Require(times == 1);
}

// Work that was launched and not yet dropped.
inline std::atomic<int> g_undropped{0};
struct Work {
  static Work* New() {
    ++g_undropped;
    return new Work;
  }
  static void Drop(void* context) {
    delete static_cast<Work*>(context);
    --g_undropped;
  }

  opkit_status status = OPKIT_OK;
  uint8_t how = 0;
  // Where an operator has run before: these elements are to be there then.
  const float* memory = nullptr;
  std::vector<float> expected;

  static opkit_status Run(void* context) {
    const auto& self = *static_cast<Work*>(context);
    for (size_t i = 0; i < self.expected.size(); ++i) Require(self.memory[i] == self.expected[i]);
    if (self.how & 1) {
      Loop loop(9);
      Require(g_host->parallel_for(nullptr, 9, 2, &Loop::Run, &loop) == OPKIT_OK);
    }
    opkit_invocation identity{};
    g_host->invocation(&identity);
    opkit_scope scope;
    g_host->adopt(&identity, &scope);
    if (self.how & 2) g_host->set_error(self.status, "in work", 7);
    if (self.how & 4) g_host->add_error(", added", 7);
    g_host->scope_end(&scope);
    return self.status;
  }
};
inline void CallLaunch(const opkit_call* call) {
  static Work lasting;
  const bool null_work = In().Rarely(), null_drop = In().Rarely();
  Work* const work = null_drop ? &lasting : Work::New();
  if (!null_drop) {
    work->how = In().Byte();
    if (In().Byte() % 4 == 3) work->status = static_cast<opkit_status>(In().Number());
  }
  const opkit_status status = g_host->launch(call, null_work ? nullptr : &Work::Run,
                                             null_drop ? nullptr : &Work::Drop, work);
  if (null_work) Require(status != OPKIT_OK);
}

inline void CallMemory(const opkit_call* call) {
  void* memory = nullptr;
  constexpr int64_t kSizes[] = {64,  1,         0,         63,      4097,   -1,
                                -64, INT64_MIN, INT64_MAX, 1 << 20, 1 << 30};
  const int64_t bytes = In().Of(kSizes);
  const opkit_status status = g_host->alloc(call, bytes, &memory);
  Require((status == OPKIT_OK) == (bytes >= 0 && bytes <= 1 << 20));
  Require((memory != nullptr) == (status == OPKIT_OK && bytes > 0));
  Require(reinterpret_cast<uintptr_t>(memory) % 64 == 0);
  if (memory) std::memset(memory, 7, static_cast<size_t>(bytes));
}
inline void CallTemporary(const opkit_call* call) {
  constexpr int64_t kExtents[] = {2, 1, 0, 5, -1, INT64_MIN, INT64_MAX, 1 << 20, int64_t{1} << 33};
  int64_t shape[40];
  for (int64_t& extent : shape) extent = 1;
  for (int i = 0; i < 3; ++i) shape[i] = In().RightOr(int64_t{3}, kExtents);
  const int32_t rank = In().RightOr(In().Byte() % 4, {-1, INT32_MIN, 7, 32, 33, 40});
  const int32_t dtype = In().RightOr(1 + In().Byte() % 15, {0, -1, 16, INT32_MAX, INT32_MIN});
  struct {
    opkit_tensor tensor;
    char more[32];
  } longer{};
  longer.tensor.size =
      In().RightOr(uint64_t{sizeof(opkit_tensor)},
                   {uint64_t{0}, uint64_t{8}, uint64_t{24}, uint64_t{71}, uint64_t{sizeof longer}});
  const bool complete = longer.tensor.size >= sizeof(opkit_tensor);
  const bool null_shape = In().Rarely();
  const int64_t* const extents = null_shape ? nullptr : shape;
  const bool is_output = In().Byte() % 4 == 3;
  const opkit_status status =
      is_output
          ? g_host->allocate_output(call, In().RightOr(uint64_t{0}, {uint64_t{1}, UINT64_MAX}),
                                    dtype, rank, extents, &longer.tensor)
          : g_host->temporary(call, dtype, rank, extents, &longer.tensor);
  if (null_shape && rank > 0) Require(status != OPKIT_OK);
  if (status != OPKIT_OK || !complete) return;
  const opkit_tensor& tensor = longer.tensor;
  Require(rank >= 0 && tensor.rank == rank && tensor.dtype == dtype && dtype > 0 && dtype < 16);
  int64_t count = 1;
  for (int32_t i = 0; i < rank; ++i) {
    Require(tensor.shape[i] == shape[i] && shape[i] >= 0);
    count *= shape[i];
  }
  Require(tensor.data || count == 0);
  if (tensor.data && count < 4096) std::memset(tensor.data, 1, static_cast<size_t>(count));
}

inline void CallScopes(const opkit_call* call) {
  opkit_invocation outer{}, inner{};
  g_host->invocation(&outer);
  opkit_scope scope;
  if (In().Byte() % 2) {
    opkit_invocation other{static_cast<uint64_t>(In().Number()),
                           static_cast<uint64_t>(In().Number()),
                           static_cast<uint64_t>(In().Number())};
    g_host->adopt(In().Rarely() ? &outer : &other, &scope);
    g_host->invocation(&inner);
    Require(inner.id == other.id || inner.id == outer.id);
  } else {
    g_host->scope_begin(call, In().Mostly<const char*>("part", nullptr), &scope);
    g_host->invocation(&inner);
    Require(inner.id != outer.id && inner.parent == outer.id);
    if (In().Byte() % 2) CallScopes(call);
  }
  g_host->scope_end(&scope);
  g_host->invocation(&inner);
  Require(inner.id == outer.id && inner.parent == outer.parent && inner.kind == outer.kind);
}

// An operator of the host's on a part of a tensor of the host's, into a part of another.
inline void CallInvokeOnSlice(const opkit_call* call) {
  opkit_tensor in{}, out{};
  in.size = out.size = sizeof in;
  const int64_t extents[] = {3, 5};
  Require(g_host->temporary(call, OPKIT_FLOAT32, 1, &extents[0], &in) == OPKIT_OK &&
          g_host->temporary(call, OPKIT_FLOAT32, 1, &extents[1], &out) == OPKIT_OK);
  auto *x = static_cast<float*>(in.data), *y = static_cast<float*>(out.data);
  for (int i = 0; i < 3; ++i) x[i] = static_cast<float>(i + 1);
  for (int i = 0; i < 5; ++i) y[i] = 100;
  struct Slice {
    int first, rank;
    int64_t shape[2], strides[2];
  };
  constexpr Slice kSlices[] = {{0, 1, {3, 0}, {1, 0}}, {1, 1, {2, 0}, {1, 0}},
                               {0, 1, {2, 0}, {1, 0}}, {2, 1, {1, 0}, {1, 0}},
                               {0, 1, {2, 0}, {2, 0}}, {0, 2, {1, 3}, {3, 1}},
                               {2, 0, {0, 0}, {0, 0}}, {1, 1, {3, 0}, {0, 0}},
                               {3, 1, {0, 0}, {1, 0}}, {0, 2, {2, 2}, {1, 1}}};
  const Slice slice = In().Of(kSlices);
  in.data = x + slice.first;
  in.rank = out.rank = slice.rank;
  in.shape = out.shape = slice.shape;
  in.strides = slice.strides;
  const int64_t dense[] = {slice.rank == 2 ? slice.shape[1] : 1, 1};
  out.strides = dense;
  const int at = In().Byte() % 2;
  out.data = y + at;
  // Memory of the library's own is as good, where it lasts until the stream has come past it.
  if (In().Byte() % 4 == 3) in.host = nullptr;
  if (In().Byte() % 4 == 3) out.host = nullptr;
  Work* const check = Work::New();
  check->memory = y;
  check->expected.assign(5, 100);
  const int64_t rows = slice.rank > 0 ? slice.shape[0] : 1;
  const int64_t columns = slice.rank > 1 ? slice.shape[1] : 1;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t k = 0; k < columns; ++k)
      check->expected[static_cast<size_t>(at + i * columns + k)] =
          -x[slice.first + i * slice.strides[0] + k * slice.strides[1]];
  Require(g_host->invoke(call, "Neg", 1, &in, 1, &out, 0, nullptr) == OPKIT_OK);
  static_cast<void>(g_host->launch(call, &Work::Run, &Work::Drop, check));
}

inline const opkit_tensor* AnyTensors(const opkit_call* call, const opkit_tensor* own,
                                      uint64_t own_count, std::vector<opkit_tensor>& made,
                                      Parts& parts, uint64_t& count) {
  const uint8_t how = In().Byte() % 4;
  count = own_count;
  if (how < 2) {
    if (how == 1 && In().Rarely()) count = In().RightOr(uint64_t{0}, kAbsurdCounts);
    return how == 1 && In().Rarely() ? nullptr : own;
  }
  for (int n = 1 + In().Byte() % 3; n > 0; --n) {
    opkit_tensor& tensor = made.emplace_back(*parts.View());
    if (how == 3 && call->num_inputs > 0 && In().Byte() % 2) {
      const opkit_tensor& input = *opkit_input(call, 0);
      if (input.size == sizeof input) tensor = input;
    }
  }
  count = In().RightOr(uint64_t{made.size()}, kAbsurdCounts);
  return made.data();
}
inline void CallInvoke(const opkit_call* call) {
  static thread_local int depth = 0;  // operators may invoke themselves
  if (depth == 4) return;
  ++depth;
  {
    const char* const kOps[] = {"Neg", "FuzzedA", "Identity", "FuzzedB", "If", "FuzzedA_backward"};
    const char* const kNone[] = {nullptr, "", "Nothing", "\xff"};
    Parts parts;
    std::vector<opkit_tensor> ins, outs;
    uint64_t num_inputs = 0, num_outputs = 0, num_attrs = 0;
    const char* op = In().RightOr(In().Of(kOps), kNone);
    const opkit_tensor* inputs =
        AnyTensors(call, call->inputs, call->num_inputs, ins, parts, num_inputs);
    const opkit_tensor* outputs =
        AnyTensors(call, call->outputs, call->num_outputs, outs, parts, num_outputs);
    const opkit_attr* const* attrs = parts.Attrs(num_attrs);
    // On a stream it runs later, and memory of the library's own would have to last until then.
    const bool lasts = !call->asynchronous || (ins.empty() && outs.empty());
    const bool beside = lasts && In().Byte() % 4 == 3;
    opkit_pending* pending = nullptr;
    const opkit_status status =
        beside ? g_host->invoke_async(call, op, num_inputs, inputs, num_outputs, outputs, num_attrs,
                                      attrs, &pending)
        : lasts
            ? g_host->invoke(call, op, num_inputs, inputs, num_outputs, outputs, num_attrs, attrs)
            : OPKIT_OK;
    if (!op) Require(status != OPKIT_OK || !lasts);
    if (beside) Require((pending != nullptr) == (status == OPKIT_OK));
    // Memory of the library's own ends here.
    if (pending && (!ins.empty() || !outs.empty() || In().Byte() % 2 == 0))
      static_cast<void>(g_host->wait(call, pending));
  }
  --depth;
}

// Threads that end what was deferred.
inline std::vector<std::thread> g_later;
inline void EndLater() {
  for (std::thread& thread : g_later) thread.join();
  g_later.clear();
}
inline void CallDefer(const opkit_call* call) {
  opkit_completion* completion = nullptr;
  if (g_host->defer(call, &completion) != OPKIT_OK) return Require(!completion);
  if (In().Rarely()) {
    opkit_completion* second = nullptr;
    Require(g_host->defer(call, &second) != OPKIT_OK && !second);
  }
  const auto status =
      In().Byte() % 4 == 3 ? static_cast<opkit_status>(In().Number()) : opkit_status{OPKIT_OK};
  const char* const kTexts[] = {"later", "", nullptr};
  const char* text = In().Of(kTexts);
  if (In().Byte() % 2) return g_host->complete(completion, status, text);
  opkit_invocation identity{};
  g_host->invocation(&identity);
  const bool allocates = In().Byte() % 2;
  g_later.emplace_back([=] {
    opkit_scope scope;
    g_host->adopt(&identity, &scope);
    void* memory = nullptr;
    if (allocates) Require(g_host->alloc(call, 64, &memory) == OPKIT_OK && memory);
    if (memory) std::memset(memory, 1, 64);
    g_host->complete(completion, status, text);
    g_host->scope_end(&scope);
  });
}

// One of the table's functions.
inline void CallHost(const opkit_call* call) {
  switch (In().Byte() % 12) {
    case 0:
      return WithText([](const char* text, uint64_t size) {
        g_host->set_error(static_cast<opkit_status>(In().Number()), text, size);
      });
    case 1:
      return WithText([](const char* text, uint64_t size) { g_host->add_error(text, size); });
    case 2:
      return static_cast<void>(std::strlen(g_host->failure_text()));
    case 3:
      return CallMemory(call);
    case 4:
      return CallTemporary(call);
    case 5:
      return CallParallelFor(call);
    case 6:
      return CallLaunch(call);
    case 7:
      return CallInvoke(call);
    case 8:
      return CallInvokeOnSlice(call);
    case 9: {
      const char* const kTexts[] = {"logged", "", nullptr};
      return g_host->log(call, In().RightOr(In().Byte() % 3, {-1, 3, INT32_MAX, INT32_MIN}),
                         In().Of(kTexts));
    }
    case 10:
      return CallScopes(call);
    default:
      return CallDefer(call);
  }
}

// Calls the functions of a gradient maker.
inline void CallGradient(const opkit_gradient* gradient) {
  const char* const kNames[] = {"x", "", nullptr, "new", "\xff"};
  const char* const kSuffixes[] = {nullptr, "", "_part"};
  const char* name = "x_grad";
  const uint8_t how = In().Byte() % 4;
  if (how != 1) {
    name = gradient->new_name(gradient, In().Of(kNames), In().Of(kSuffixes));
    if (how == 2) return;
  }
  if (how != 3) {
    Parts parts;
    const char* from = gradient->node->num_outputs > 0 ? gradient->dense[0] : "x";
    static_cast<void>(gradient->add_node(
        gradient, In().Rarely() ? nullptr : parts.Node(from, name ? name : "z")));
    if (how == 1) return;
  }
  const uint64_t input = In().RightOr(uint64_t{0}, {uint64_t{1}, uint64_t{65536}, UINT64_MAX});
  const opkit_status status =
      gradient->set_input(gradient, input, In().Mostly<const char*>(name, nullptr),
                          In().Mostly<const char*>(nullptr, "i"), In().Of(kNames));
  Require((status == OPKIT_OK) == (input < gradient->node->num_inputs));
}

#endif  // OPKIT_TESTS_FUZZ_HOST_CALLS_HPP_
