// Operators of dense tensors, and the list of all that this library has.
#include <stdlib.h>
#include <string.h>

#include "boundary.h"

static int Float32(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes;
  for (int i = 0; i < num_in; ++i)
    if (in[i] != FLOAT32) return ERROR_MESSAGE("input %d is of another type than float32", i);
  for (int i = 0; i < num_out; ++i) out[i] = FLOAT32;
  return SUCCESS;
}

static int Relu(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                int num_out, const Resource* resource) {
  (void)attributes, (void)num_in, (void)num_out, (void)resource;
  const float* x = in[0].data;
  for (int64_t i = 0; i < SizeOf(&in[0]); ++i) ((float*)out[0].data)[i] = x[i] > 0 ? x[i] : 0;
  return SUCCESS;
}
static int ReluBackward(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                        int num_out, const Resource* resource) {
  (void)attributes, (void)resource;
  if (num_in != 3 || num_out != 1) return ERROR_MESSAGE("%d inputs of backward", num_in);
  const float *dy = in[0].data, *x = in[1].data;
  for (int64_t i = 0; i < SizeOf(&in[1]); ++i) ((float*)out[0].data)[i] = x[i] > 0 ? dy[i] : 0;
  return SUCCESS;
}
// What a kernel of a GPU is asked to do on a machine without one.
static int ReluOnGpu(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                     int num_out, const Resource* resource) {
  (void)attributes, (void)num_in, (void)out, (void)num_out;
  return ERROR_MESSAGE("told to run on %s %d %s a stream", in[0].device, in[0].device_id,
                       resource->stream ? "with" : "without");
}
static const Operator my_relu = {.name = "my_relu",
                                 .parse = OneToOne,
                                 .type = Float32,
                                 .shape = SameShape,
                                 .forward = Relu,
                                 .backward = ReluBackward,
                                 .gpu_forward = ReluOnGpu};
static const Operator my_noisy_relu = {.name = "my_noisy_relu",
                                       .parse = OneToOne,
                                       .type = Float32,
                                       .shape = SameShape,
                                       .forward = NoisyRelu};

static int StateRelu(State* state, const Tensor* in, int num_in, Tensor* out, int num_out,
                     const Resource* resource) {
  (void)state;
  return Relu(NULL, in, num_in, out, num_out, resource);
}
static int StateReluBackward(State* state, const Tensor* in, int num_in, Tensor* out, int num_out,
                             const Resource* resource) {
  (void)state;
  return ReluBackward(NULL, in, num_in, out, num_out, resource);
}
static int CreateStateRelu(const Attributes* attributes, const Context* context, State** state) {
  (void)attributes, (void)context;
  *state = NewState();
  (*state)->forward = StateRelu;
  (*state)->backward = StateReluBackward;
  return SUCCESS;
}
static const Operator my_state_relu = {.name = "my_state_relu",
                                       .parse = OneToOne,
                                       .type = Float32,
                                       .shape = SameShape,
                                       .create = CreateStateRelu};

// describe_state gives out what its state was created with: the number of inputs, for each its
// dtype, rank and extents, then 1 for the CPU and the device's index; -1 fills up.
static int TwoToInt32(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes, (void)in, (void)num_in, (void)num_out;
  out[0] = INT32;
  return SUCCESS;
}
static int Of16(const Attributes* attributes, Shape* in, int num_in, Shape* out, int num_out) {
  (void)attributes, (void)in, (void)num_in, (void)num_out;
  out[0].rank = 1;
  out[0].dims[0] = 16;
  return SUCCESS;
}
static int Describe(State* state, const Tensor* in, int num_in, Tensor* out, int num_out,
                    const Resource* resource) {
  (void)in, (void)num_in, (void)num_out, (void)resource;
  for (int i = 0; i < 16; ++i) ((int32_t*)out[0].data)[i] = (int32_t)state->numbers[i];
  return SUCCESS;
}
static int CreateDescribe(const Attributes* attributes, const Context* context, State** state) {
  (void)attributes;
  *state = NewState();
  (*state)->forward = Describe;
  int64_t numbers[32], n = 0;
  for (int i = 0; i < 32; ++i) numbers[i] = -1;
  numbers[n++] = context->num_in;
  for (int i = 0; i < context->num_in && n < 10; ++i) {
    numbers[n++] = context->types[i];
    numbers[n++] = context->ranks[i];
    for (int k = 0; k < context->ranks[i] && n < 14; ++k) numbers[n++] = context->shapes[i][k];
  }
  numbers[n++] = !strcmp(context->device, "cpu");
  numbers[n++] = context->device_id;
  memcpy((*state)->numbers, numbers, sizeof numbers);
  return SUCCESS;
}
static const Operator describe_state = {.name = "describe_state",
                                        .parse = TwoToOne,
                                        .type = TwoToInt32,
                                        .shape = Of16,
                                        .create = CreateDescribe};

// y = 2 x for each dtype that MXNet's libraries know.
static int Twice(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                 int num_out, const Resource* resource) {
  (void)attributes, (void)num_in, (void)num_out, (void)resource;
  const int64_t size = SizeOf(&in[0]);
  const void* x = in[0].data;
  void* y = out[0].data;
  for (int64_t i = 0; i < size; ++i) switch (in[0].dtype) {
      case FLOAT32:
        ((float*)y)[i] = ((const float*)x)[i] * 2;
        break;
      case FLOAT64:
        ((double*)y)[i] = ((const double*)x)[i] * 2;
        break;
      case FLOAT16:  // one more in the exponent; only for normal numbers
        ((uint16_t*)y)[i] = (uint16_t)(((const uint16_t*)x)[i] + 0x400);
        break;
      case UINT8:
        ((uint8_t*)y)[i] = (uint8_t)(((const uint8_t*)x)[i] * 2);
        break;
      case INT32:
        ((int32_t*)y)[i] = ((const int32_t*)x)[i] * 2;
        break;
      case INT8:
        ((int8_t*)y)[i] = (int8_t)(((const int8_t*)x)[i] * 2);
        break;
      default:
        ((int64_t*)y)[i] = ((const int64_t*)x)[i] * 2;
    }
  return SUCCESS;
}
static const Operator twice = {
    .name = "twice", .parse = OneToOne, .type = SameType, .shape = SameShape, .forward = Twice};

// a += b; y = a.
static int FirstInput(const Attributes* attributes, int* list, int* count) {
  (void)attributes;
  list[0] = 0;
  *count = 1;
  return SUCCESS;
}
static int AddInto(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                   int num_out, const Resource* resource) {
  (void)attributes, (void)num_in, (void)num_out, (void)resource;
  float *a = in[0].data, *y = out[0].data;
  for (int64_t i = 0; i < SizeOf(&in[0]); ++i) y[i] = a[i] += ((const float*)in[1].data)[i];
  return SUCCESS;
}
static const Operator add_into = {.name = "add_into",
                                  .parse = TwoToOne,
                                  .type = Float32,
                                  .shape = SameShape,
                                  .mutate = FirstInput,
                                  .forward = AddInto};

// Gives out a + b and a - b. Its backward gets a gradient of each.
static int TwoToTwo(const Attributes* attributes, int* num_in, int* num_out) {
  (void)attributes;
  *num_in = *num_out = 2;
  return SUCCESS;
}
static int SumAndDifference(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                            int num_out, const Resource* resource) {
  (void)attributes, (void)num_in, (void)num_out, (void)resource;
  const float *a = in[0].data, *b = in[1].data;
  for (int64_t i = 0; i < SizeOf(&in[0]); ++i) {
    ((float*)out[0].data)[i] = a[i] + b[i];
    ((float*)out[1].data)[i] = a[i] - b[i];
  }
  return SUCCESS;
}
static int SumAndDifferenceBackward(const Attributes* attributes, const Tensor* in, int num_in,
                                    Tensor* out, int num_out, const Resource* resource) {
  if (num_in != 6) return ERROR_MESSAGE("%d inputs of backward", num_in);
  return SumAndDifference(attributes, in, num_in, out, num_out, resource);
}
static const Operator sum_and_difference = {.name = "sum_and_difference",
                                            .parse = TwoToTwo,
                                            .type = Float32,
                                            .shape = SameShape,
                                            .forward = SumAndDifference,
                                            .backward = SumAndDifferenceBackward};

// y = x + 3 by two pieces of the host's memory, which must not be one. Attribute `bytes` asks for
// another size.
static int Scratch(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                   int num_out, const Resource* resource) {
  (void)num_in, (void)num_out;
  const int64_t size = SizeOf(&in[0]);
  const char* said = Get(attributes, "bytes", NULL);
  const int bytes = said ? atoi(said) : (int)(size * (int64_t)sizeof(float));
  float* one = resource->cpu_malloc(resource->cpu_alloc, bytes);
  float* two = resource->cpu_malloc(resource->cpu_alloc, bytes);
  if (bytes != 0 && (!one || !two)) return ERROR_MESSAGE("no memory for %d bytes", bytes);
  for (int64_t i = 0; i < size; ++i) one[i] = 1;
  for (int64_t i = 0; i < size; ++i) two[i] = 2;
  for (int64_t i = 0; i < size; ++i)
    ((float*)out[0].data)[i] = ((const float*)in[0].data)[i] + one[i] + two[i];
  return SUCCESS;
}
static const Operator scratch = {
    .name = "scratch", .parse = OneToOne, .type = Float32, .shape = SameShape, .forward = Scratch};

// What its attribute `text` is, in bytes, to see how the host spells attributes.
static int Bytes(const Attributes* attributes, int* in, int num_in, int* out, int num_out) {
  (void)attributes, (void)in, (void)num_in, (void)num_out;
  out[0] = UINT8;
  return SUCCESS;
}
static int TextShape(const Attributes* attributes, Shape* in, int num_in, Shape* out, int num_out) {
  (void)in, (void)num_in, (void)num_out;
  out[0].rank = 1;
  out[0].dims[0] = (unsigned)strlen(Get(attributes, "text", ""));
  return SUCCESS;
}
static int Text(const Attributes* attributes, const Tensor* in, int num_in, Tensor* out,
                int num_out, const Resource* resource) {
  (void)in, (void)num_in, (void)num_out, (void)resource;
  const char* text = Get(attributes, "text", "");
  memcpy(out[0].data, text, strlen(text));
  return SUCCESS;
}
static const Operator attribute_text = {.name = "attribute_text",
                                        .parse = NoneToOne,
                                        .type = Bytes,
                                        .shape = TextShape,
                                        .forward = Text};

const Operator* const library_operators[] = {&my_gemm,
                                             &state_gemm,
                                             &my_relu,
                                             &my_noisy_relu,
                                             &my_state_relu,
                                             &describe_state,
                                             &twice,
                                             &add_into,
                                             &scratch,
                                             &attribute_text,
                                             &my_transposecsr,
                                             &my_state_transposecsr,
                                             &my_transposerowsp,
                                             &scale_stored,
                                             &custom_subgraph_op,
                                             &counters_operator,
                                             &sum_and_difference,
                                             NULL};
