/* Operators whose names, attributes and inputs are no names in C++, or names of something else
 * there. Each output is default * input + a.b + 10 * a_b + 100 * the sum of `class` + 1000 *
 * `arguments`. */
#include <opkit/abi/opkit_abi.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  float factor, sum;
} affine;

static opkit_status create(const opkit_kernel* kernel, const opkit_node* node, void** instance) {
  const opkit_attr* attr;
  affine* made = (affine*)malloc(sizeof *made);
  uint64_t i;
  (void)kernel;
  if (!made) return OPKIT_OUT_OF_MEMORY;
  made->factor = 1;
  made->sum = 0;
  if ((attr = opkit_find_attr(node, "default"))) made->factor = (float)attr->floats[0];
  if ((attr = opkit_find_attr(node, "a.b"))) made->sum += (float)attr->ints[0];
  if ((attr = opkit_find_attr(node, "a_b"))) made->sum += 10 * (float)attr->ints[0];
  if ((attr = opkit_find_attr(node, "class")))
    for (i = 0; i < attr->count; ++i) made->sum += 100 * (float)attr->floats[i];
  if ((attr = opkit_find_attr(node, "arguments")))
    made->sum += 1000 * ((const float*)attr->tensors[0]->data)[0];
  *instance = made;
  return OPKIT_OK;
}
static opkit_status forward(void* instance, const opkit_call* call) {
  const affine* made = (const affine*)instance;
  uint64_t o;
  for (o = 0; o < call->num_outputs; ++o) {
    const opkit_tensor* x = opkit_input(call, o);
    const opkit_tensor* y = opkit_output(call, o);
    const int64_t count = opkit_numel(x);
    int64_t i;
    if (y->req == OPKIT_REQ_NONE) continue;
    for (i = 0; i < count; ++i)
      ((float*)y->data)[i] = made->factor * ((const float*)x->data)[i] + made->sum;
  }
  return OPKIT_OK;
}

static opkit_status one(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                        int32_t* num_outputs) {
  (void)op, (void)node;
  *num_inputs = *num_outputs = 1;
  return OPKIT_OK;
}
static opkit_status any(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                        int32_t* num_outputs) {
  (void)op, (void)node;
  *num_inputs = *num_outputs = -1;
  return OPKIT_OK;
}
static opkit_status infer_type(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                               opkit_value* outputs) {
  uint64_t o;
  (void)op;
  for (o = 0; o < node->num_outputs && o < node->num_inputs; ++o)
    opkit_value_at(inputs, o)->dtype = opkit_value_at(outputs, o)->dtype = OPKIT_FLOAT32;
  return OPKIT_OK;
}
static opkit_status infer_shape(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                                opkit_value* outputs) {
  uint64_t o;
  (void)op;
  for (o = 0; o < node->num_outputs && o < node->num_inputs; ++o) {
    opkit_value* to = opkit_value_at(outputs, o);
    if (opkit_value_at(inputs, o)->rank < 0) continue;
    to->rank = opkit_value_at(inputs, o)->rank;
    memcpy(to->dims, opkit_value_at(inputs, o)->dims, sizeof to->dims);
  }
  return OPKIT_OK;
}

static const opkit_kernel kernel = {
    .size = sizeof kernel, .device = "cpu", .create = create, .destroy = free, .forward = forward};
static const opkit_kernel* const kernels[] = {&kernel};

static const int64_t seven[] = {7}, six[] = {6};
static const double two[] = {2}, list[] = {0.5, -1e30, 1e30};
static const char* const texts[] = {"a \"?\?/\\", "b"};
static const uint64_t text_sizes[] = {7, 1};
static const opkit_attr default_two = {.size = sizeof default_two,
                                       .name = "default",
                                       .type = OPKIT_ATTR_FLOAT,
                                       .count = 1,
                                       .floats = two};
static const opkit_attr default_seven = {
    .size = sizeof default_seven, .name = "a_b", .type = OPKIT_ATTR_INT, .count = 1, .ints = seven};
static const opkit_attr default_six = {
    .size = sizeof default_six, .name = "int64_t", .type = OPKIT_ATTR_INT, .count = 1, .ints = six};
static const opkit_attr default_list = {.size = sizeof default_list,
                                        .name = "class",
                                        .type = OPKIT_ATTR_FLOATS,
                                        .count = 3,
                                        .floats = list};
static const opkit_attr default_texts = {.size = sizeof default_texts,
                                         .name = "std",
                                         .type = OPKIT_ATTR_STRINGS,
                                         .count = 2,
                                         .strings = texts,
                                         .string_sizes = text_sizes};
static const opkit_attr no_ints = {
    .size = sizeof no_ints, .name = "ToArguments", .type = OPKIT_ATTR_INTS};

#define PARAMETER(name_, type_, default_)                                           \
  {                                                                                 \
    .size = sizeof(opkit_parameter), .name = name_, .doc = "C:\\ or /* or ?\?/ \\", \
    .default_value = default_, .type = type_                                        \
  }
static const opkit_parameter attrs[] = {PARAMETER("default", OPKIT_ATTR_FLOAT, &default_two),
                                        PARAMETER("a.b", OPKIT_ATTR_INT, NULL),
                                        PARAMETER("a_b", OPKIT_ATTR_INT, &default_seven),
                                        PARAMETER("class", OPKIT_ATTR_FLOATS, &default_list),
                                        PARAMETER("arguments", OPKIT_ATTR_TENSOR, NULL),
                                        PARAMETER("more", OPKIT_ATTR_TENSORS, NULL),
                                        PARAMETER("ToArguments", OPKIT_ATTR_INTS, &no_ints),
                                        PARAMETER("int64_t", OPKIT_ATTR_INT, &default_six),
                                        PARAMETER("std", OPKIT_ATTR_STRINGS, &default_texts),
                                        PARAMETER("opkit", OPKIT_ATTR_BOOL, NULL),
                                        PARAMETER("2d", OPKIT_ATTR_STRING, NULL),
                                        PARAMETER("any", -1, NULL)};
static const opkit_parameter* const attr_pointers[] = {
    &attrs[0], &attrs[1], &attrs[2], &attrs[3], &attrs[4],  &attrs[5],
    &attrs[6], &attrs[7], &attrs[8], &attrs[9], &attrs[10], &attrs[11]};
static const opkit_parameter input = PARAMETER("options", -1, NULL);
static const opkit_parameter* const inputs[] = {&input};

#define OP(name_, arity)                                                            \
  .size = sizeof(opkit_op), .name = name_, .doc = "An operator.", .file = __FILE__, \
  .line = __LINE__, .num_kernels = 1, .kernels = kernels, .parse_attrs = arity,     \
  .infer_type = infer_type, .infer_shape = infer_shape, .num_inputs = 1, .inputs = inputs
static const opkit_op domain_op = {OP("my.domain::scale-by", one), .flags = OPKIT_OP_OPEN_ATTRS,
                                   .num_attrs = sizeof attrs / sizeof *attrs,
                                   .attrs = attr_pointers};
static const opkit_op same_op = {OP("my_domain__scale_by", one), .flags = OPKIT_OP_CLOSED_ATTRS};
static const opkit_op struct_op = {OP("my_domain__scale_byAttributes", one),
                                   .flags = OPKIT_OP_CLOSED_ATTRS};
static const opkit_op list_op = {OP("class", any), .flags = OPKIT_OP_CLOSED_ATTRS};
static const opkit_op std_op = {OP("std", one), .flags = OPKIT_OP_CLOSED_ATTRS};
static const opkit_op* const ops[] = {&domain_op, &same_op, &struct_op, &list_op, &std_op};
static const opkit_library library = {.size = sizeof library,
                                      .abi_major = OPKIT_ABI_MAJOR,
                                      .abi_minor = OPKIT_ABI_MINOR,
                                      .num_ops = sizeof ops / sizeof *ops,
                                      .ops = ops};

const opkit_library* opkit_library_entry(const opkit_host* host) {
  (void)host;
  return &library;
}
