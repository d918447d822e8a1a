// A library that lies in each member of each struct of the ABI, and in each argument of each
// function that it calls. The lies come from the one list of members, abi_members.inc, by their
// types: a new member gets its lies by itself, and a new struct that no scene passes to the host
// fails here. A lie that the host can detect is an Error; no lie crashes or hangs the host.
#include <doctest/doctest.h>

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "library_fixture.hpp"
#include "opkit/base/process/child_process.hpp"
#include "opkit/core/layout_registry.hpp"
#include "opkit/device/copy.hpp"
#include "opkit/graph/abi_graph.hpp"
#include "opkit/graph/executor.hpp"
#include "opkit/ops/subgraph.hpp"
#include "opkit/partition.hpp"

namespace library_lies_test {
namespace {

using namespace opkit;
using namespace library_fixture;

// ----------------------------------------------------------------------------------------- lies

enum class Lie {
  kZero,
  kOne,
  kEight,
  kAllBits,
  kLess,
  kLeast,
  kMost,
  kManyAxes,
  kHuge,
  kNoNumber,
  kInfinite,
  kShifted,
  kEmpty,
  kControl,
  kEndless,
};
constexpr const char* kNames[] = {"zero",     "1",           "8",     "all bits", "-2",
                                  "least",    "most",        "33",    "huge",     "NaN",
                                  "infinite", "not aligned", "empty", "control",  "without an end"};

// A text of more bytes than any may have, and behind it memory that must not be read.
const char* EndlessText() {
  static const char* const text = [] {
    constexpr size_t kBytes = detail::kMostTextBytes + 1, kGuard = 65536;
    void* const memory = ::mmap(nullptr, kBytes + kGuard, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    std::memset(memory, 'x', kBytes);
    REQUIRE(::mprotect(static_cast<char*>(memory) + kBytes, kGuard, PROT_NONE) == 0);
    return static_cast<const char*>(memory);
  }();
  return text;
}

// A value of one of the ABI's types in memory.
template <class T>
void Tell(void* place, Lie lie) {
  T value;
  std::memcpy(&value, place, sizeof value);
  if constexpr (std::is_same_v<T, const char*>) {
    value = lie == Lie::kZero      ? nullptr
            : lie == Lie::kEmpty   ? ""
            : lie == Lie::kControl ? "\n\x7f"
                                   : EndlessText();
  } else if constexpr (std::is_pointer_v<T>) {
    uintptr_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    bits = lie == Lie::kZero ? 0 : bits + 1;
    std::memcpy(&value, &bits, sizeof bits);
  } else if constexpr (std::is_floating_point_v<T>) {
    value = lie == Lie::kZero       ? 0
            : lie == Lie::kNoNumber ? std::nan("")
                                    : std::numeric_limits<T>::infinity();
    if (lie == Lie::kLess) value = -2;
  } else {
    using Limits = std::numeric_limits<T>;
    value = lie == Lie::kZero       ? T{0}
            : lie == Lie::kOne      ? T{1}
            : lie == Lie::kEight    ? T{8}
            : lie == Lie::kAllBits  ? static_cast<T>(-1)
            : lie == Lie::kLess     ? static_cast<T>(-2)
            : lie == Lie::kLeast    ? Limits::min()
            : lie == Lie::kMost     ? Limits::max()
            : lie == Lie::kManyAxes ? T{33}
            : lie == Lie::kShifted  ? static_cast<T>(value + 1)
                                    : static_cast<T>(uint64_t{1} << (sizeof(T) > 4 ? 40 : 30));
  }
  std::memcpy(place, &value, sizeof value);
}

// A lie for a value of some type. `is_refused`: the host can detect it for certain.
struct Claim {
  Lie lie;
  bool is_refused;
};
template <class T>
std::vector<Claim> ClaimsOf(std::string_view name) {
  if constexpr (std::is_same_v<T, const char*>) {
    return {
        {Lie::kZero, false}, {Lie::kEmpty, false}, {Lie::kControl, false}, {Lie::kEndless, true}};
  } else if constexpr (std::is_pointer_v<T>) {
    using To = std::remove_pointer_t<T>;
    if constexpr (std::is_function_v<To> || std::is_void_v<To> || !requires { sizeof(To); })
      return {{Lie::kZero, false}};
    else if constexpr (alignof(To) == 1)
      return {{Lie::kZero, false}};
    else
      return {{Lie::kZero, false}, {Lie::kShifted, true}};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {
        {Lie::kZero, false}, {Lie::kLess, false}, {Lie::kNoNumber, false}, {Lie::kInfinite, false}};
  } else if (name == "size") {
    return {{Lie::kZero, true}, {Lie::kEight, true}, {Lie::kShifted, true}, {Lie::kAllBits, true}};
  } else if (name.starts_with("num_") || name == "count") {
    return {{Lie::kZero, false}, {Lie::kHuge, true}, {Lie::kAllBits, true}};
  } else if (std::is_same_v<T, uint64_t>) {  // a smaller count cannot be detected
    return {{Lie::kZero, false}, {Lie::kLess, false}, {Lie::kAllBits, false}, {Lie::kHuge, false}};
  } else {
    return {{Lie::kZero, false}, {Lie::kOne, false},     {Lie::kAllBits, false},
            {Lie::kLess, false}, {Lie::kLeast, false},   {Lie::kMost, false},
            {Lie::kHuge, false}, {Lie::kManyAxes, false}};
  }
}

// A member as the list of members has it.
struct Member {
  const void* type;  // the address of its kTypeTag
  std::string type_name, name;
  size_t at, bytes;
  std::vector<Claim> claims;
  void (*tell)(void* place, Lie lie);
};
template <class T>
constexpr char kTypeTag = 0;
template <class Type, class T>
Member MemberOf(const char* type_name, const char* name, size_t at) {
  using Element = std::remove_all_extents_t<T>;
  return {&kTypeTag<Type>, type_name, name, at, sizeof(T), ClaimsOf<Element>(name), &Tell<Element>};
}
const std::vector<Member>& Members() {
  static const std::vector<Member> members = [] {
    std::vector<Member> all;
#define OPKIT_PIN(type, member, at) \
  all.push_back(MemberOf<type, decltype(type::member)>(#type, #member, at))
#define OPKIT_PIN_SIZE(type)
#include "abi_members.inc"
#undef OPKIT_PIN
#undef OPKIT_PIN_SIZE
    return all;
  }();
  return members;
}

// One lie, at the place that comes by as number `site` in a run of the scene.
struct Told {
  int site;
  size_t at;
  Lie lie;
  bool is_refused;
  void (*tell)(void* place, Lie lie);
  std::string what;
};
// The run of the scene: the first one, with nothing but the truth, lists the lies.
struct Scene {
  const Told* told = nullptr;
  std::vector<Told>* listed = nullptr;
  std::set<const void*> structs;
  int site = 0;
} g_scene;

// Members that the host does not read: nothing said there is refused.
bool IsUnread(const Member& member) {
  static const std::set<std::string> unread = {
      "opkit_attr.text",   "opkit_attr.strings", "opkit_attr.string_sizes", "opkit_attr.tensors",
      "opkit_attr.floats", "opkit_tensor.host",  "opkit_value.layout"};
  return unread.contains(member.type_name + "." + member.name);
}
// Applies the current lie to a struct that the library passes to the host. `is_answer`: the host
// owns the struct, and the library fills it in.
template <class Struct>
Struct& Say(Struct& truth, bool is_answer = false) {
  const int site = g_scene.site++;
  g_scene.structs.insert(&kTypeTag<Struct>);
  if (g_scene.told && g_scene.told->site == site)
    g_scene.told->tell(reinterpret_cast<char*>(&truth) + g_scene.told->at, g_scene.told->lie);
  if (!g_scene.listed) return truth;
  for (const Member& member : Members()) {
    if (member.type != &kTypeTag<Struct>) continue;
    const char* const place = reinterpret_cast<const char*>(&truth) + member.at;
    const bool is_null = std::all_of(place, place + member.bytes, [](char c) { return c == 0; });
    for (const Claim& claim : member.claims) {
      if (is_null && claim.lie == Lie::kShifted && member.name != "size") continue;
      g_scene.listed->push_back({site, member.at, claim.lie,
                                 claim.is_refused && !is_answer && !IsUnread(member), member.tell,
                                 StrCat("site ", site, ": ", member.type_name, ".", member.name,
                                        " is ", kNames[static_cast<int>(claim.lie)])});
    }
  }
  return truth;
}
// The same in a value that stands alone: an argument, an element of an array.
template <class T>
T& SayValue(T& truth, const std::string& what) {
  const int site = g_scene.site++;
  if (g_scene.told && g_scene.told->site == site) Tell<T>(&truth, g_scene.told->lie);
  if (g_scene.listed)
    for (const Claim& claim : ClaimsOf<T>(""))
      if (claim.lie != Lie::kShifted || truth != T{})
        g_scene.listed->push_back(
            {site, 0, claim.lie, false, &Tell<T>,
             StrCat("site ", site, ": ", what, " is ", kNames[static_cast<int>(claim.lie)])});
  return truth;
}
// Calls a function of the host's with lies in its arguments; its own structs may only be null.
template <class T>
using Argument = std::conditional_t<
    requires(T t) { sizeof(*t); } && std::is_pointer_v<T> &&
        (std::is_same_v<std::remove_cvref_t<std::remove_pointer_t<T>>, opkit_call> ||
         requires(T t) { t->context; }),
    const void*, T>;
std::set<const void*> g_called;
template <class R, class... A>
R Call(const char* name, R (*function)(A...), std::type_identity_t<A>... arguments) {
  g_called.insert(reinterpret_cast<const void*>(function));
  int number = 0;
  [[maybe_unused]] const auto say = [&]<class T>(T& argument) {
    const std::string what = StrCat("argument ", number++, " of ", name);
    if constexpr (std::is_same_v<T, opkit_scope*>) {  // what it holds is the host's
    } else if constexpr (std::is_same_v<Argument<T>, T>) {
      SayValue(argument, what);
    } else {
      const void* opaque = argument;
      SayValue(opaque, what);
      if (!opaque) argument = nullptr;
    }
  };
  (say(arguments), ...);
  return function(arguments...);
}

// ------------------------------------------------------------------------------------ the library

const opkit_host* g_library_host = nullptr;
const int64_t kTwo[] = {2}, kDense[] = {1};
float g_elements[] = {1, 2};

opkit_tensor View() {
  opkit_tensor view = OpTensor(g_elements, DType::kFloat32, kTwo, kDense, 1).view();
  return view;
}
struct Attr {
  opkit_attr attr{};
  int64_t numbers[2] = {1, 2};
  explicit Attr(const char* name) {
    attr.size = sizeof attr;
    attr.name = name;
    attr.type = OPKIT_ATTR_INTS;
    attr.count = 2;
    attr.ints = numbers;
    attr.text = "[1, 2]";
  }
};
struct TextAttr {
  opkit_attr attr{};
  const char* text = "ab";
  uint64_t bytes = 2;
  TextAttr() {
    attr.size = sizeof attr;
    attr.name = "text";
    attr.type = OPKIT_ATTR_STRING;
    attr.count = 1;
    attr.strings = &text;
    attr.string_sizes = &bytes;
    attr.text = text;
  }
};
// y = Neg(x), with an attribute, and at the first level a graph inside.
struct Node {
  opkit_node node{};
  const char* input;
  const char* output;
  Node(const char* op, const char* reads, const char* makes) : input(reads), output(makes) {
    node.size = sizeof node;
    node.op = op;
    node.name = "";
    node.device_type = OPKIT_CPU;
    node.num_inputs = node.num_outputs = 1;
    node.inputs = &input;
    node.outputs = &output;
    node.backend = "";
  }
  Node(Node&&) = delete;
};
struct Body {
  opkit_graph graph{};
  opkit_value value{};
  opkit_tensor constant = View();
  const opkit_tensor* constants[1] = {&constant};
  const char *input, *constant_name = "c", *value_name;
  Node inner;
  const opkit_node* nodes[1] = {&inner.node};
  Body(const char* name, const char* reads, const char* makes)
      : input(reads), value_name(reads), inner("LieNeg", reads, makes) {
    value.size = sizeof value;
    value.present = 1;
    value.dtype = OPKIT_FLOAT32;
    value.rank = 1;
    value.dims[0] = 2;
    graph.size = sizeof graph;
    graph.name = name;
    graph.num_inputs = graph.num_outputs = graph.num_constants = graph.num_nodes = 1;
    graph.inputs = &input;
    graph.outputs = &inner.output;
    graph.constant_names = &constant_name;
    graph.constants = constants;
    graph.nodes = nodes;
    graph.num_values = 1;
    graph.value_names = &value_name;
    graph.values = &value;
  }
  Body(Body&&) = delete;
  const opkit_graph* Told() {
    Say(value);
    Say(constant);
    Say(inner.node);
    SayValue(value_name, "the name of a value");
    SayValue(constants[0], "a constant");
    SayValue(nodes[0], "a node");
    return &Say(graph);
  }
};

opkit_config Config() {
  static const int32_t pair[] = {0, 0};
  opkit_config config{};
  config.size = sizeof config;
  config.num_inplace = 1;
  config.inplace = pair;
  config.cost_ns = 5;
  return config;
}
opkit_status Forward(void*, const opkit_call* call) {
  const opkit_tensor &x = *opkit_input(call, 0), &y = *opkit_output(call, 0);
  if (x.dtype != OPKIT_FLOAT32 || y.dtype != OPKIT_FLOAT32) return OPKIT_TYPE_MISMATCH;
  for (int64_t i = 0; i < std::min(opkit_numel(&x), opkit_numel(&y)); ++i)
    static_cast<float*>(y.data)[i] = -static_cast<const float*>(x.data)[i];
  return OPKIT_OK;
}
opkit_status SameShape(const opkit_op*, const opkit_node*, opkit_value* inputs,
                       opkit_value* outputs) {
  outputs[0].rank = inputs[0].rank;
  std::memcpy(outputs[0].dims, inputs[0].dims, sizeof inputs[0].dims);
  Say(outputs[0], true);
  return OPKIT_OK;
}
opkit_status OneToOne(const opkit_op*, const opkit_node*, int32_t* inputs, int32_t* outputs) {
  *inputs = *outputs = 1;
  SayValue(*inputs, "the number of inputs");
  SayValue(*outputs, "the number of outputs");
  return OPKIT_OK;
}
opkit_status MoveAll(const opkit_tensor* from, const opkit_tensor* to) {
  for (int64_t i = 0; i < opkit_numel(from); ++i)
    static_cast<float*>(to->data)[i] = static_cast<const float*>(from->data)[i];
  return OPKIT_OK;
}

// All that a library can bring, each part once, and its answers.
struct Liar {
  Attr fallback{"a"};
  opkit_parameter attribute{}, input{};
  const opkit_parameter *attributes[1] = {&attribute}, *inputs[1] = {&input};
  opkit_kernel kernel{};
  const opkit_kernel* kernels[1] = {&kernel};
  opkit_op op{};
  const opkit_op* ops[1] = {&op};
  opkit_layout layout{}, other_layout{};
  const opkit_layout* layouts[2] = {&layout, &other_layout};
  opkit_layout_converter converter{};
  const opkit_layout_converter* converters[1] = {&converter};
  opkit_device device{};
  const opkit_device* devices[1] = {&device};
  opkit_partitioner partitioner{};
  const opkit_partitioner* partitioners[1] = {&partitioner};
  opkit_pass edits{}, replaces{};
  const opkit_pass* passes[2] = {&edits, &replaces};
  opkit_backend backend{};
  const opkit_backend* backends[1] = {&backend};
  int32_t pair[2] = {0, 0};
  opkit_library library{};

  Liar() {
    attribute.size = input.size = sizeof attribute;
    attribute.name = "a";
    attribute.doc = input.doc = "what it is";
    attribute.type = OPKIT_ATTR_INTS;
    attribute.default_value = &fallback.attr;
    input.name = "x";
    input.type = -1;
    kernel.size = sizeof kernel;
    kernel.device = "cpu";
    kernel.backend = "lie_fast";
    kernel.forward = &Forward;
    kernel.propose = [](const opkit_kernel*, const opkit_node*, const opkit_value*,
                        const opkit_value*, const opkit_proposals* proposals) {
      opkit_config config = Config();
      return Call("propose's add", proposals->add, proposals, &Say(config));
    };
    kernel.fuse = [](const opkit_kernel*, const opkit_fusion* fusion) -> opkit_status {
      Node both("LieOp", fusion->node->inputs[0], fusion->next->outputs[0]);
      opkit_config config = Config();
      return Call("fuse", fusion->fuse, fusion, &Say(both.node), &Say(config));
    };
    op.size = sizeof op;
    op.name = "LieOp";
    op.doc = "Negates.";
    op.file = "lies.c";
    op.num_kernels = op.num_attrs = op.num_inputs = op.num_outputs = op.num_inplace = 1;
    op.kernels = kernels;
    op.inplace = pair;
    op.attrs = attributes;
    op.inputs = op.outputs = inputs;
    op.parse_attrs = &OneToOne;
    op.infer_type = [](const opkit_op*, const opkit_node*, opkit_value* in, opkit_value* out) {
      out[0].dtype = in[0].dtype;
      Say(out[0], true);
      return opkit_status{OPKIT_OK};
    };
    op.infer_shape = &SameShape;
    op.mutated_inputs = [](const opkit_op*, const opkit_node*, uint8_t*) {
      return opkit_status{OPKIT_OK};
    };
    op.scratch_bytes = [](const opkit_op*, const opkit_node*, const opkit_value*, int64_t* bytes) {
      *bytes = 64;
      SayValue(*bytes, "scratch");
      return opkit_status{OPKIT_OK};
    };
    op.cost = [](const opkit_op*, const opkit_node*, const opkit_value*, const opkit_value*,
                 opkit_cost* cost) {
      Say(*cost, true);
      return opkit_status{OPKIT_OK};
    };
    op.gradient = [](const opkit_op*, const opkit_gradient* gradient) -> opkit_status {
      const char* name = Call("new_name", gradient->new_name, gradient, "x", nullptr);
      if (!name) return OPKIT_FAILED;
      Attr kept("a");
      const opkit_attr* const attrs[] = {&kept.attr};
      Node node("LieOp", gradient->dense[0], name);
      Say(kept.attr);
      node.node.num_attrs = 1;
      node.node.attrs = attrs;
      if (const opkit_status added =
              Call("add_node", gradient->add_node, gradient, &Say(node.node)))
        return added;
      return Call("set_input", gradient->set_input, gradient, 0, name, nullptr, nullptr);
    };
    op.test_inputs = [](const opkit_op*, int32_t, uint64_t, const opkit_test_inputs* to) {
      opkit_tensor view = View();
      return Call("test_inputs' add", to->add, to, &Say(view));
    };
    layout.size = other_layout.size = sizeof layout;
    layout.name = "lie_layout";
    other_layout.name = "lie_other";
    layout.bytes = [](const opkit_layout*, int32_t, int32_t, const int64_t*, int64_t* bytes) {
      *bytes = 4096;
      return opkit_status{OPKIT_OK};
    };
    layout.to_standard = layout.from_standard = other_layout.to_standard =
        other_layout.from_standard = [](const opkit_layout*, const opkit_tensor* from,
                                        const opkit_tensor* to) { return MoveAll(from, to); };
    layout.ns_per_byte = 1;
    converter.size = sizeof converter;
    converter.from = "lie_layout";
    converter.to = "lie_other";
    converter.convert = [](const opkit_layout_converter*, const opkit_tensor* from,
                           const opkit_tensor* to) { return MoveAll(from, to); };
    converter.ns_per_byte = 1;
    device.size = sizeof device;
    device.name = "lie_device";
    device.type = 111;
    device.available = [](const opkit_device*, int32_t) { return opkit_status{OPKIT_OK}; };
    device.alloc = [](const opkit_device*, int32_t, int64_t bytes, void** memory) {
      *memory = std::aligned_alloc(64, (static_cast<size_t>(bytes) + 63) / 64 * 64);
      return opkit_status{OPKIT_OK};
    };
    device.free = [](const opkit_device*, void* memory, int64_t) { std::free(memory); };
    device.copy = [](const opkit_device*, int32_t, int32_t, void* to, const void* from,
                     int64_t bytes) {
      std::memcpy(to, from, static_cast<size_t>(bytes));
      return opkit_status{OPKIT_OK};
    };
    partitioner.size = sizeof partitioner;
    partitioner.name = "lie_partitioner";
    partitioner.file = "lies.c";
    partitioner.subgraph_op = [](const opkit_partitioner*, int32_t) {
      const char* op = "Subgraph";
      return SayValue(op, "what subgraph_op answers");
    };
    partitioner.mark = [](void*, const opkit_partition* partition) -> opkit_status {
      const char* text = nullptr;
      uint64_t count = 0;
      const int64_t* nodes = nullptr;
      for (const opkit_status status :
           {Call("json", partition->json, partition, &text, &count, &nodes),
            Call("refuse", partition->refuse, partition, 0, "for a reason"),
            Call("take", partition->take, partition, 0, -1, 0)})
        if (status != OPKIT_OK) return status;
      return OPKIT_OK;
    };
    partitioner.review = [](void*, const opkit_partition* partition) -> opkit_status {
      Attr attr("size");
      TextAttr text;
      opkit_tensor view = View();
      SayValue(text.text, "a string");
      if (text.text && !*text.text) text.bytes = 0;  // the host must believe that it has its bytes
      SayValue(text.bytes, "the bytes of a string");
      for (const opkit_status status :
           {Call("set_attr", partition->set_attr, partition, &Say(attr.attr)),
            Call("set_attr of a text", partition->set_attr, partition, &Say(text.attr)),
            Call("add_constant", partition->add_constant, partition, "prepared", &Say(view))})
        if (status != OPKIT_OK) return status;
      return g_library_host->is_profiling() ? Call("reject", partition->reject, partition, "why")
                                            : opkit_status{OPKIT_OK};
    };
    edits.size = replaces.size = sizeof edits;
    edits.name = "lie_edits";
    replaces.name = "lie_replaces";
    edits.file = "lies.c";
    edits.run = [](const opkit_pass*, const opkit_rewrite* rewrite) -> opkit_status {
      Node before("LieNeg", "x", "before"), instead("LieNeg", "before", "y");
      opkit_tensor view = View();
      for (const opkit_status status :
           {Call("add_node of a pass", rewrite->add_node, rewrite, 0, &Say(before.node)),
            Call("replace_node", rewrite->replace_node, rewrite, 0, &Say(instead.node)),
            Call("replace_uses", rewrite->replace_uses, rewrite, "nothing", "before"),
            Call("add_constant of a pass", rewrite->add_constant, rewrite, "k", &Say(view)),
            Call("remove_constant", rewrite->remove_constant, rewrite, "unused"),
            Call("remove_node", rewrite->remove_node, rewrite, 0),
            Call("replace_node again", rewrite->replace_node, rewrite, 0, &instead.node)})
        if (status != OPKIT_OK) return status;
      return OPKIT_OK;
    };
    replaces.run = [](const opkit_pass*, const opkit_rewrite* rewrite) -> opkit_status {
      Body whole("whole", "x", "y"), inside("body", "i", "o");
      const opkit_graph* graphs[] = {inside.Told()};
      whole.inner.node.op = "Subgraph";
      whole.inner.node.num_graphs = 1;
      whole.inner.node.graphs = graphs;
      SayValue(graphs[0], "a graph of a node");
      return Call("set_graph", rewrite->set_graph, rewrite, whole.Told());
    };
    backend.size = sizeof backend;
    backend.name = "lie_fast";
    backend.rank = 5;
    backend.available = [](const opkit_backend*) { return opkit_status{OPKIT_OK}; };
    library.size = sizeof library;
    library.abi_major = OPKIT_ABI_MAJOR;
    library.abi_minor = OPKIT_ABI_MINOR;
    library.name = "liar";
    library.version = "0.1";
    library.own_version = "1.0";
    library.initialize = [](uint32_t, uint32_t) { return opkit_status{OPKIT_OK}; };
    library.finalize = [] {};
    library.num_ops = library.num_layout_converters = library.num_devices =
        library.num_partitioners = library.num_backends = 1;
    library.num_layouts = library.num_passes = 2;
    library.ops = ops;
    library.layouts = layouts;
    library.layout_converters = converters;
    library.devices = devices;
    library.partitioners = partitioners;
    library.passes = passes;
    library.backends = backends;
  }
  Liar(Liar&&) = delete;

  void SayDescription() {
    Say(fallback.attr);
    Say(attribute);
    Say(input);
    Say(kernel);
    Say(op);
    Say(layout);
    Say(converter);
    Say(device);
    Say(partitioner);
    Say(edits);
    Say(backend);
    SayValue(kernels[0], "a kernel");
    SayValue(ops[0], "an operator");
    SayValue(attributes[0], "a parameter");
    SayValue(layouts[0], "a layout");
    SayValue(pair[1], "an in-place pair");
    Say(library);
  }
};
Liar* g_liar = nullptr;

// --------------------------------------------------------------------------------------- scenes

// Operators of the program under the names that the library uses.
REGISTER_OP(LieNeg)
    .input("x")
    .output("y")
    .allowUncheckedAttributes()
    .setInferShape([](const AttrMap&, ShapeVectors& in, ShapeVectors& out) { out[0] = in[0]; })
    .setForward([](const AttrMap&, std::span<const OpTensor> in, std::span<OpTensor> out,
                   OpResource&) {
      for (int64_t i = 0; i < in[0].size(); ++i) out[0].data<float>()[i] = -in[0].data<float>()[i];
    });

Graph OneNode(const char* op = "LieOp") {
  Graph graph;
  graph.AddInput("x", DType::kFloat32, {2});
  graph.AddConstant("unused", Vector({1, 2}));
  graph.AddNode(OperatorDef(op, {"x"}, {"y"}));
  graph.AddOutput("y");
  return graph;
}
// The library is loaded for `use`, and is gone afterwards.
void WithLibrary(const std::function<void()>& use) {
  Liar liar;
  g_liar = &liar;
  Library library = Library::LoadEntry(
      [](const opkit_host* host) -> const opkit_library* {
        g_library_host = host;
        g_liar->SayDescription();
        return &g_liar->library;
      },
      "liar");
  std::exception_ptr failure;
  try {
    use();
  } catch (...) {
    failure = std::current_exception();
  }
  library.Unload();
  if (failure) std::rethrow_exception(failure);
}

void Describes() {
  WithLibrary([] {
    Invoke("LieOp", {Vector({1, 2})});
    const OpSchema& schema = OpRegistry::Global().GetSchema("LieOp");
    const TensorInfo info(DType::kFloat32, Shape{2});
    schema.MakeTestInputs(DType::kFloat32, 1);
    schema.Cost(OperatorDef("LieOp", {"x"}, {"y"}), {info}, {info});
    OpRegistry::Global().Backends();
    {
      const Layout there{FindLayout("lie_layout"), {}}, other{FindLayout("lie_other"), {}};
      ConvertLayout(ConvertLayout(ConvertLayout(Vector({1, 2}), there), other), {});
      Tensor far(Device{static_cast<DeviceType>(g_liar->device.type), 0});
      Copy(Vector({1, 2}), &far);
    }
    for (const char* pass : {"lie_edits", "lie_replaces"}) RunPass(OneNode("LieNeg"), pass);
    Partition(OneNode("LieNeg"), "lie_partitioner");
    GetGradientForOp(OperatorDef("LieOp", {"x"}, {"y"}), {"dy"});
    Graph chain;
    chain.AddInput("x", DType::kFloat32, {2});
    chain.AddNode(OperatorDef("LieOp", {"x"}, {"t"}));
    chain.AddNode(OperatorDef("LieOp", {"t"}, {"y"}));
    chain.AddOutput("y");
    Executor(Compile(chain)).Run({{"x", Vector({1, 2})}});
  });
}

// A kernel that calls every function of the host's table.
opkit_status CallsHost(void*, const opkit_call* call) {
  const opkit_host& host = *call->host;
  static_cast<void>(Forward(nullptr, call));
  void *memory = nullptr, *owner = nullptr;
  opkit_tensor made{};
  made.size = sizeof made;
  opkit_scope scope, inner;
  opkit_invocation identity{};
  opkit_completion* completion = nullptr;
  opkit_pending* pending = nullptr;
  Attr attr("k");
  const opkit_attr* attrs[] = {&attr.attr};
  opkit_tensor in = *opkit_input(call, 0), out = *opkit_output(call, 0);
  Body body("body", "x", "y");
  Node node("LieNeg", "x", "y");
  opkit_value values[2] = {body.value, body.value};
  const auto loop = [](void*, int64_t, int64_t end) {
    return opkit_status{end > 1000 ? OPKIT_OUT_OF_RANGE : OPKIT_OK};  // the end of it
  };
  const auto work = [](void*) { return opkit_status{OPKIT_OK}; };
  Call("set_error", host.set_error, OPKIT_FAILED, "told", 4);
  Call("add_error", host.add_error, "more", 4);
  g_called.insert(reinterpret_cast<const void*>(host.failure_text));
  std::vector<opkit_status> answers;
  answers.push_back(Call("alloc", host.alloc, call, 64, &memory));
  Say(made, true);
  answers.push_back(Call("temporary", host.temporary, call, OPKIT_FLOAT32, 1, kTwo, &made));
  answers.push_back(Call("parallel_for", host.parallel_for, call, 2, 1, +loop, nullptr));
  answers.push_back(Call("launch", host.launch, call, +work, nullptr, nullptr));
  Say(in), Say(out), Say(attr.attr);
  SayValue(attrs[0], "an attribute");
  answers.push_back(Call("invoke", host.invoke, call, "LieNeg", 1, &in, 1, &out, 1, attrs));
  answers.push_back(
      Call("invoke_async", host.invoke_async, call, "LieNeg", 1, &in, 1, &out, 1, attrs, &pending));
  if (pending) answers.push_back(Call("wait", host.wait, call, pending));
  answers.push_back(Call("run_graph", host.run_graph, call, body.Told(), 1, opkit_input(call, 0), 1,
                         opkit_output(call, 0)));
  Call("log", host.log, call, OPKIT_LOG_INFO, "logged");
  Call("scope_begin", host.scope_begin, call, "part", &scope);
  Call("invocation", host.invocation, &identity);
  Call("adopt", host.adopt, &identity, &inner);
  host.scope_end(&inner);
  Call("span_begin", host.span_begin, 2, "span", "node", &inner);
  host.scope_end(&inner);
  host.scope_end(&scope);
  g_called.insert(reinterpret_cast<const void*>(host.scope_end));
  static_cast<void>(Call("defer", host.defer, call, &completion));
  if (completion) host.complete(completion, OPKIT_OK, "");
  Call("complete", host.complete, nullptr, OPKIT_OK, "");
  static_cast<void>(
      Call("allocate_output", host.allocate_output, call, 7, OPKIT_FLOAT32, 1, kTwo, &made));
  Call("has_operator", host.has_operator, "LieNeg");
  Say(values[0]), Say(values[1]);
  answers.push_back(Call("infer", host.infer, &Say(node.node), &values[0], &values[1]));
  answers.push_back(Call("allocate", host.allocate, OPKIT_CPU, 0, 64, &memory, &owner));
  if (owner) host.deallocate(owner, memory, 64);
  Call("deallocate", host.deallocate, nullptr, nullptr, 64);
  Call("is_profiling", host.is_profiling);
  for (const opkit_status status : answers)
    if (status != OPKIT_OK) return status;
  return OPKIT_OK;
}
void Calls() {
  Liar liar;
  g_liar = &liar;
  liar.kernel.forward = &CallsHost;
  liar.kernel.propose = nullptr;
  liar.kernel.fuse = nullptr;
  liar.library.num_layouts = liar.library.num_layout_converters = liar.library.num_devices = 0;
  liar.library.num_partitioners = liar.library.num_passes = 0;
  Library library = Library::LoadEntry(
      [](const opkit_host*) -> const opkit_library* { return &g_liar->library; }, "liar");
  const Error error = ErrorOf([] { Invoke("LieOp", {Vector({1, 2})}); });
  library.Unload();
  if (!Contains(error.message(), "no Error was thrown")) throw error;
}

// Lists the values of the scene, and runs it once for each lie about each value.
void TellLies(void (*scene)()) {
  ThreadPool one(1);
  const PoolScope one_thread(one);
  std::vector<Told> lies;
  g_scene = {nullptr, &lies, {}, 0};
  const LogHook log = SetLogHook([](LogLevel, std::string_view, std::string_view) {});
  CHECK_NOTHROW(scene());  // the truth
  const std::set<const void*> structs = g_scene.structs;
  const std::string before = Registrations();
  const auto tell = [&](const Told& lie) {
    g_scene = {&lie, nullptr, {}, 0};
    return ErrorOf(scene).message();
  };
  for (const Told& lie : lies) {
    if (!lie.is_refused) continue;
    CAPTURE(lie.what);
    CHECK(tell(lie) != "no Error was thrown");
  }
  CHECK(Registrations() == before);
  // The others may be true as far as the host knows.
  for (size_t next = 0; next < lies.size();) {
    const detail::ChildOutcome outcome =
        detail::RunInChild(10, [&](const detail::ChildReporter& voice) {
          for (; next < lies.size(); ++next) {
            if (lies[next].is_refused) continue;
            voice.Step(StrCat(next));
            tell(lies[next]);
          }
          voice.Answer("all are told");
          return detail::ChildEnd::kAtOnce;
        });
    if (outcome.failure.empty()) break;
    next = std::stoul(outcome.step);
    FAIL_CHECK(lies[next].what << ": " << outcome.failure << " by " << outcome.how);
    ++next;
  }
  SetLogHook(log);
  g_scene = {nullptr, nullptr, structs, 0};
}

}  // namespace

TEST_CASE("the list of members has all of every struct") {
  std::map<std::string, std::vector<const Member*>> structs;
  for (const Member& member : Members()) structs[member.type_name].push_back(&member);
  for (auto& [name, members] : structs) {
    CAPTURE(name);
    std::ranges::sort(members, {}, &Member::at);
    size_t end = 0;
    for (const Member* member : members) {
      CAPTURE(member->name);
      CHECK(member->at == end);  // else one before it is missing in abi_members.inc
      end = member->at + member->bytes;
    }
#define OPKIT_PIN(type, member, at) \
  if (name == #type) CHECK(end == sizeof(type))
#define OPKIT_PIN_SIZE(type)
#include "abi_members.inc"
#undef OPKIT_PIN
#undef OPKIT_PIN_SIZE
  }
}

TEST_CASE("a library may lie in every member that it fills in") {
  TellLies(&Describes);
  // Structs that a library never hands over, and those of the other scene.
  std::set<const void*> known = g_scene.structs;
  known.insert({&kTypeTag<opkit_host>, &kTypeTag<opkit_call>, &kTypeTag<opkit_scope>,
                &kTypeTag<opkit_invocation>, &kTypeTag<opkit_proposals>, &kTypeTag<opkit_fusion>,
                &kTypeTag<opkit_test_inputs>, &kTypeTag<opkit_gradient>, &kTypeTag<opkit_partition>,
                &kTypeTag<opkit_rewrite>});
  for (const Member& member : Members())
    CHECK_MESSAGE(known.contains(member.type), member.type_name, " is in no scene");
}

TEST_CASE("a library may lie in every argument to its host's functions") {
  TellLies(&Calls);
  for (const Member& member : Members()) {
    if (member.type_name != "opkit_host") continue;
    const void* function = nullptr;
    std::memcpy(&function, reinterpret_cast<const char*>(&detail::HostTable::Global()) + member.at,
                sizeof function);
    if (member.tell == &Tell<const void*> || member.bytes != 8 || member.name == "size") continue;
    const bool is_function = member.name != "extension" && member.name != "version" &&
                             member.name != "abi_major" && member.name != "abi_minor";
    CHECK_MESSAGE((!is_function || g_called.contains(function)), member.name, " is not called");
  }
}

TEST_CASE("a temporary of more axes than there can be is refused") {
  static opkit_status answer;
  Liar liar;
  g_liar = &liar;
  liar.kernel.propose = nullptr;
  liar.kernel.forward = [](void*, const opkit_call* call) -> opkit_status {
    opkit_tensor made{};
    made.size = sizeof made;
    answer = call->host->temporary(call, OPKIT_FLOAT32, 1 << 30, kTwo, &made);
    return answer;
  };
  Library library = Library::LoadEntry(
      [](const opkit_host*) -> const opkit_library* { return &g_liar->library; }, "liar");
  const std::string said = ErrorOf([] { Invoke("LieOp", {Vector({1, 2})}); }).message();
  library.Unload();
  CHECK(answer == OPKIT_INVALID_ARGUMENT);
  CHECK(Contains(said, "temporary of dtype 12 and rank 1073741824 in operator LieOp"));
}

}  // namespace library_lies_test
