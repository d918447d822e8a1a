/* The toolkit in C: an operator of a library, and a graph of this operator and a standard one.
 *   gcc -std=c99 examples/c_host.c $(pkg-config --cflags --libs opkit-host) -o c_host
 *   LD_LIBRARY_PATH=$(pkg-config --variable=libdir opkit-host) ./c_host examples/library/gemm.cc
 * The library may be compiled already: ./c_host libgemm.so
 */
#include <opkit/abi/opkit_host.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the reason if a call has failed. */
static void check(opkit_status status, const char* call) {
  if (status == OPKIT_OK) return;
  fprintf(stderr, "%s: status %d: %s\n", call, (int)status, opkit_host_error());
  exit(1);
}
#define CHECK(call) check(call, #call)

static void expect(const float* found, const float* expected, size_t count) {
  if (memcmp(found, expected, count * sizeof *found) == 0) return;
  fprintf(stderr, "found %g %g, expected %g %g\n", found[0], found[1], expected[0], expected[1]);
  exit(1);
}

/* A dense matrix of floats as a DLPack tensor. The caller keeps both arrays. */
static opkit_dl_tensor matrix(float* data, int64_t* shape) {
  opkit_dl_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.device.device_type = OPKIT_CPU;
  tensor.ndim = 2;
  tensor.dtype.code = 2;
  tensor.dtype.bits = 32;
  tensor.dtype.lanes = 1;
  tensor.shape = shape;
  return tensor;
}

static const char kGraph[] =
    "{\"format\": \"opkit graph\", \"version\": 1,"
    " \"inputs\": [{\"name\": \"a\", \"dtype\": \"float32\", \"shape\": [\"N\", 2]},"
    "              {\"name\": \"b\", \"dtype\": \"float32\", \"shape\": [2, 2]}],"
    " \"nodes\": [{\"type\": \"my_gemm\", \"inputs\": [\"a\", \"b\"], \"outputs\": [\"ab\"]},"
    "             {\"type\": \"Relu\", \"inputs\": [\"ab\"], \"outputs\": [\"y\"]}],"
    " \"outputs\": [\"y\"]}";

int main(int argc, char** argv) {
  int64_t shape[] = {2, 2};
  float a_data[] = {1, 2, 3, 4}, b_data[] = {1, 0, -1, 1}, c_data[4];
  const float product[] = {-2, 4, -2, 8}, positive[] = {0, 2, 0, 4};
  const opkit_dl_tensor a = matrix(a_data, shape), b = matrix(b_data, shape);
  const opkit_dl_tensor c = matrix(c_data, shape);
  const opkit_dl_tensor *inputs[2], *outputs[1];
  opkit_dl_managed_tensor* made;
  opkit_host_library* library;
  opkit_host_operator* gemm;
  opkit_host_graph* graph;
  opkit_host_plan* plan;
  char* text;
  inputs[0] = &a;
  inputs[1] = &b;
  outputs[0] = &c;
  if (argc != 2) return 2;
  CHECK(opkit_host_require(OPKIT_HOST_INTERFACE));

  CHECK(opkit_host_load(argv[1], NULL, &library));
  CHECK(opkit_host_operators(library, &text));
  printf("opkit %s, operators of %s:\n%s\n", opkit_host_version(), argv[1], text);
  opkit_host_free_text(text);

  /* An operator, into memory of the program. */
  CHECK(opkit_host_make("my_gemm", 2, "{\"alpha\": 2.0}", NULL, &gemm));
  CHECK(opkit_host_run(gemm, 2, inputs, 1, outputs, NULL));
  expect(c_data, product, 4);
  /* A wrong call is a status and a text. */
  if (opkit_host_run(gemm, 1, inputs, 1, outputs, NULL) != OPKIT_INVALID_ARGUMENT) return 1;
  printf("%s\n", opkit_host_error());
  opkit_host_free_operator(gemm);

  /* A graph, whose output is made by the run. */
  CHECK(opkit_host_parse_graph(kGraph, sizeof kGraph - 1, NULL, &graph));
  CHECK(opkit_host_describe_graph(graph, &text));
  printf("%s\n", text);
  opkit_host_free_text(text);
  CHECK(opkit_host_compile(graph, "{\"threads\": 1}", &plan));
  opkit_host_free_graph(graph);
  CHECK(opkit_host_run_plan(plan, 2, inputs, 1, NULL, &made));
  expect((const float*)made->dl_tensor.data, positive, 4);
  made->deleter(made);
  opkit_host_free_plan(plan);

  CHECK(opkit_host_unload(library));
  printf("as expected\n");
  return 0;
}
