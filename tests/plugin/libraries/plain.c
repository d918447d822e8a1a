/* A library in C, compiled against one version of the ABI and loaded by another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opkit/abi/opkit_abi.h"

static const opkit_host* g_host;
static int g_instances;

static opkit_status fail(opkit_status status, const char* text) {
  g_host->set_error(status, text, strlen(text));
  return status;
}

/* PlainScale: y = factor * x. */

typedef struct scale_instance {
  const opkit_node* node;
  float factor;
} scale_instance;

static opkit_status one_to_one(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                               int32_t* num_outputs) {
  (void)op, (void)node;
  *num_inputs = *num_outputs = 1;
  return OPKIT_OK;
}
static opkit_status any_to_one(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                               int32_t* num_outputs) {
  (void)op, (void)node;
  *num_inputs = -1;
  *num_outputs = 1;
  return OPKIT_OK;
}
static opkit_status same_type(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                              opkit_value* outputs) {
  uint64_t i;
  (void)op;
  for (i = 0; i < node->num_outputs; ++i)
    opkit_value_at(outputs, i)->dtype = opkit_value_at(inputs, 0)->dtype;
  return OPKIT_OK;
}
static opkit_status same_shape(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                               opkit_value* outputs) {
  uint64_t i;
  const opkit_value* from = opkit_value_at(inputs, 0);
  (void)op;
  for (i = 0; i < node->num_outputs; ++i) {
    opkit_value* to = opkit_value_at(outputs, i);
    to->rank = from->rank;
    memcpy(to->dims, from->dims, sizeof to->dims);
  }
  return OPKIT_OK;
}
static opkit_status scratch_of_input(const opkit_op* op, const opkit_node* node,
                                     const opkit_value* inputs, int64_t* bytes) {
  int32_t axis;
  (void)op, (void)node;
  *bytes = (int64_t)sizeof(float);
  for (axis = 0; axis < inputs->rank; ++axis) *bytes *= inputs->dims[axis];
  return OPKIT_OK;
}

static opkit_status scale_create(const opkit_kernel* kernel, const opkit_node* node,
                                 void** instance) {
  const opkit_attr* factor = opkit_find_attr(node, "factor");
  scale_instance* made;
  (void)kernel;
  if (!factor || factor->type != OPKIT_ATTR_FLOAT)
    return fail(OPKIT_INVALID_ARGUMENT, "expected the attribute factor, a float");
  made = malloc(sizeof *made);
  if (!made) return OPKIT_OUT_OF_MEMORY;
  made->node = node;
  made->factor = (float)factor->floats[0];
  *instance = made;
  ++g_instances;
  return OPKIT_OK;
}
static void scale_destroy(void* instance) {
  --g_instances;
  free(instance);
}

typedef struct loop {
  float factor;
  const float* from;
  float* to;
} loop;
static opkit_status loop_body(void* context, int64_t begin, int64_t end) {
  const loop* l = context;
  int64_t i;
  for (i = begin; i < end; ++i) l->to[i] = l->factor * l->from[i];
  return OPKIT_OK;
}
static opkit_status scale_run(const opkit_call* call, float factor, uint64_t input) {
  const opkit_tensor *x = opkit_input(call, input), *y = opkit_output(call, 0);
  loop l;
  if (x->dtype != OPKIT_FLOAT32) return fail(OPKIT_TYPE_MISMATCH, "only float32 is scaled");
  l.factor = factor;
  l.from = x->data;
  l.to = y->data;
  return call->host->parallel_for(call, opkit_numel(x), 1, loop_body, &l);
}
static opkit_status scale_forward(void* instance, const opkit_call* call) {
  const scale_instance* self = instance;
  const opkit_tensor* x = opkit_input(call, 0);
  if (call->scratch_bytes != opkit_numel(x) * (int64_t)sizeof(float))
    return fail(OPKIT_FAILED, "the scratch is not as large as declared");
  memset(call->scratch, 1, (size_t)call->scratch_bytes);
  return scale_run(call, self->factor, 0);
}
static opkit_status scale_backward(void* instance, const opkit_call* call) {
  return scale_run(call, ((const scale_instance*)instance)->factor, 0);
}

/* PlainInstances: y[0] = how many instances of PlainScale there are. */
static opkit_status instances_forward(void* author, const opkit_call* call) {
  (void)author;
  ((float*)opkit_output(call, 0)->data)[0] = (float)g_instances;
  return OPKIT_OK;
}

/* PlainSum: of any number of inputs, by the host's AbiAdd. */
static opkit_status sum_forward(void* author, const opkit_call* call) {
  const opkit_host* host = call->host;
  const opkit_tensor* x = opkit_input(call, 0);
  opkit_tensor pair[2], total;
  opkit_status status;
  uint64_t i;
  (void)author;
  memset(&total, 0, sizeof total);
  total.size = sizeof total;
  status = host->temporary(call, x->dtype, x->rank, x->shape, &total);
  if (status != OPKIT_OK) return fail(status, host->failure_text());
  memset(total.data, 0, (size_t)opkit_numel(x) * sizeof(float));
  for (i = 0; i < call->num_inputs; ++i) {
    const opkit_tensor* one = opkit_input(call, i);
    memset(pair, 0, sizeof pair);
    memcpy(&pair[0], &total, sizeof total < total.size ? sizeof total : (size_t)total.size);
    memcpy(&pair[1], one, sizeof *one < one->size ? sizeof *one : (size_t)one->size);
    pair[0].size = pair[1].size = sizeof(opkit_tensor);
    if (i + 1 == call->num_inputs) {
      opkit_tensor result;
      const opkit_tensor* out = opkit_output(call, 0);
      memset(&result, 0, sizeof result);
      memcpy(&result, out, sizeof *out < out->size ? sizeof *out : (size_t)out->size);
      result.size = sizeof result;
      status = host->invoke(call, "AbiAdd", 2, pair, 1, &result, 0, NULL);
    } else {
      status = host->invoke(call, "AbiAdd", 2, pair, 1, &total, 0, NULL);
    }
    if (status != OPKIT_OK) return fail(status, host->failure_text());
  }
  return OPKIT_OK;
}

/* PlainNewer: calls a function that only a later version of the host's table has. */
#ifdef OPKIT_TEST_NEWER_ABI
static opkit_status newer_forward(void* author, const opkit_call* call) {
  char text[160];
  (void)author;
  if (OPKIT_ABI_HAS(call->host, newer_function) && call->host->newer_function)
    return call->host->newer_function(call);
  snprintf(text, sizeof text, "it needs newer_function of ABI %d.%d, which this program (%u.%u) %s",
           OPKIT_ABI_MAJOR, OPKIT_ABI_MINOR, (unsigned)call->host->abi_major,
           (unsigned)call->host->abi_minor,
           OPKIT_ABI_HAS(call->host, newer_function) ? "does not offer" : "does not have");
  return fail(OPKIT_UNSUPPORTED, text);
}
static const opkit_kernel newer_kernel = {
    .size = sizeof newer_kernel, .device = "cpu", .forward = newer_forward, .newer_member = 1};
static const opkit_kernel* const newer_kernels[] = {&newer_kernel};
static const opkit_op newer = {.size = sizeof newer,
                               .name = "PlainNewer",
                               .num_kernels = 1,
                               .kernels = newer_kernels,
                               .parse_attrs = one_to_one,
                               .infer_shape = same_shape,
                               .newer_member = 2};
#endif

static const opkit_kernel scale_kernel = {.size = sizeof scale_kernel,
                                          .device = "cpu",
                                          .create = scale_create,
                                          .destroy = scale_destroy,
                                          .forward = scale_forward,
                                          .backward = scale_backward};
static const opkit_kernel* const scale_kernels[] = {&scale_kernel};
static const double one = 1;
static const opkit_attr factor_default = {.size = sizeof factor_default,
                                          .name = "factor",
                                          .type = OPKIT_ATTR_FLOAT,
                                          .count = 1,
                                          .floats = &one,
                                          .text = "1"};
static const opkit_parameter factor = {.size = sizeof factor,
                                       .name = "factor",
                                       .doc = "What x is multiplied by.",
                                       .default_value = &factor_default,
                                       .type = OPKIT_ATTR_FLOAT};
static const opkit_parameter* const scale_attrs[] = {&factor};
static const opkit_parameter x = {.size = sizeof x,
                                  .name = "x",
                                  .doc = "Any shape.",
                                  .type = -1,
                                  .dtypes = (uint64_t)1 << OPKIT_FLOAT32};
static const opkit_parameter* const scale_inputs[] = {&x};
static const int32_t in_place[] = {0, 0};
static const opkit_op scale = {.size = sizeof scale,
                               .name = "PlainScale",
                               .doc = "Multiplies by factor.",
                               .file = "plain.c",
                               .line = 1,
                               .num_kernels = 1,
                               .kernels = scale_kernels,
                               .num_inplace = 1,
                               .inplace = in_place,
                               .parse_attrs = one_to_one,
                               .infer_type = same_type,
                               .infer_shape = same_shape,
                               .scratch_bytes = scratch_of_input,
                               .num_attrs = 1,
                               .attrs = scale_attrs,
                               .num_inputs = 1,
                               .inputs = scale_inputs};

static const opkit_kernel instances_kernel = {
    .size = sizeof instances_kernel, .device = "cpu", .forward = instances_forward};
static const opkit_kernel* const instances_kernels[] = {&instances_kernel};
static const opkit_op instances = {.size = sizeof instances,
                                   .name = "PlainInstances",
                                   .flags = OPKIT_OP_EFFECTS,
                                   .num_kernels = 1,
                                   .kernels = instances_kernels,
                                   .parse_attrs = one_to_one,
                                   .infer_shape = same_shape};

static const opkit_kernel sum_kernel = {
    .size = sizeof sum_kernel, .device = "cpu", .forward = sum_forward};
static const opkit_kernel* const sum_kernels[] = {&sum_kernel};
static const opkit_op sum = {.size = sizeof sum,
                             .name = "PlainSum",
                             .num_kernels = 1,
                             .kernels = sum_kernels,
                             .parse_attrs = any_to_one,
                             .infer_shape = same_shape};

static const opkit_op* const ops[] = {&scale, &instances, &sum,
#ifdef OPKIT_TEST_NEWER_ABI
                                      &newer
#endif
};
static const opkit_library library = {.size = sizeof library,
                                      .abi_major = OPKIT_ABI_MAJOR,
                                      .abi_minor = OPKIT_ABI_MINOR,
                                      .name = "plain",
                                      .num_ops = sizeof ops / sizeof ops[0],
                                      .ops = ops};

#ifdef __GNUC__
__attribute__((visibility("default")))
#endif
const opkit_library*
opkit_library_entry(const opkit_host* host);
const opkit_library* opkit_library_entry(const opkit_host* host) {
  g_host = host;
  return &library;
}
