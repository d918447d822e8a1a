/* A whole library in C, on opkit_abi.h alone: y = scale * x, and its gradient.
 *   gcc -std=c99 -O2 -shared -fPIC -Iinclude examples/library/plain_c.c -o libplain_c.so
 */
#include <opkit/abi/opkit_abi.h>
#include <stdlib.h>
#include <string.h>

static const opkit_host* host;

static opkit_status fail(const char* text) {
  host->set_error(OPKIT_INVALID_ARGUMENT, text, strlen(text));
  return OPKIT_INVALID_ARGUMENT;
}

/* An instance is a node's factor, read from its attribute once. */
static opkit_status create(const opkit_kernel* kernel, const opkit_node* node, void** instance) {
  const opkit_attr* scale = opkit_find_attr(node, "scale");
  double* factor = (double*)malloc(sizeof *factor);
  (void)kernel;
  if (!factor) return OPKIT_OUT_OF_MEMORY;
  *factor = !scale          ? 1
            : scale->floats ? scale->floats[0]
            : scale->ints   ? (double)scale->ints[0]
                            : 0;
  *instance = factor;
  return OPKIT_OK;
}

static opkit_status multiply(double factor, const opkit_tensor* x, const opkit_tensor* y) {
  const int64_t count = opkit_numel(x);
  int64_t i;
  if (y->req == OPKIT_REQ_NONE) return OPKIT_OK;
  for (i = 0; i < count; ++i) ((float*)y->data)[i] = (float)factor * ((const float*)x->data)[i];
  return OPKIT_OK;
}
static opkit_status forward(void* instance, const opkit_call* call) {
  return multiply(*(double*)instance, opkit_input(call, 0), opkit_output(call, 0));
}
/* Input 0 is the gradient of y, output 0 that of x. */
static opkit_status backward(void* instance, const opkit_call* call) {
  return forward(instance, call);
}

static opkit_status parse_attrs(const opkit_op* op, const opkit_node* node, int32_t* num_inputs,
                                int32_t* num_outputs) {
  const opkit_attr* factor = opkit_find_attr(node, "scale");
  (void)op;
  if (factor && factor->type != OPKIT_ATTR_FLOAT && factor->type != OPKIT_ATTR_INT)
    return fail("scale must be a number");
  *num_inputs = *num_outputs = 1;
  return OPKIT_OK;
}
static opkit_status infer_type(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                               opkit_value* outputs) {
  (void)op, (void)node;
  inputs->dtype = outputs->dtype = OPKIT_FLOAT32;
  return OPKIT_OK;
}
static opkit_status infer_shape(const opkit_op* op, const opkit_node* node, opkit_value* inputs,
                                opkit_value* outputs) {
  (void)op, (void)node;
  if (inputs->rank < 0) return OPKIT_OK; /* not known yet */
  outputs->rank = inputs->rank;
  memcpy(outputs->dims, inputs->dims, sizeof outputs->dims);
  return OPKIT_OK;
}

static const int32_t inplace[] = {0, 0};
static const opkit_kernel kernel = {.size = sizeof kernel,
                                    .device = "cpu",
                                    .create = create,
                                    .destroy = free,
                                    .forward = forward,
                                    .backward = backward};
static const opkit_kernel* const kernels[] = {&kernel};
static const opkit_op scale_op = {.size = sizeof scale_op,
                                  .name = "c_scale",
                                  .doc = "scale * x, written in C. Attribute: scale (1).",
                                  .file = __FILE__,
                                  .line = __LINE__,
                                  .num_kernels = 1,
                                  .kernels = kernels,
                                  .num_inplace = 1,
                                  .inplace = inplace,
                                  .parse_attrs = parse_attrs,
                                  .infer_type = infer_type,
                                  .infer_shape = infer_shape};
static const opkit_op* const ops[] = {&scale_op};
static const opkit_library library = {.size = sizeof library,
                                      .abi_major = OPKIT_ABI_MAJOR,
                                      .abi_minor = OPKIT_ABI_MINOR,
                                      .num_ops = 1,
                                      .ops = ops};

const opkit_library* opkit_library_entry(const opkit_host* given) {
  host = given;
  return &library;
}
