#include <wb.h>
#define wbCheck(stmt)                                                      \
  do {                                                                     \
    cudaError_t err = stmt;                                                \
    if (err != cudaSuccess) {                                              \
      wbLog(ERROR, "Failed to run stmt ", #stmt);                          \
      return -1;                                                           \
    }                                                                      \
  } while (0)

// Compute C = A * B
__global__ void matrixMultiply(float *A, float *B, float *C, int numARows,
                               int numAColumns, int numBRows,
                               int numBColumns, int numCRows,
                               int numCColumns) {
  int Row = blockIdx.y * blockDim.y + threadIdx.y;
  int Col = blockIdx.x * blockDim.x + threadIdx.x;
  if (numAColumns != numBRows) return;
  if ((Row < numARows) && (Col < numBColumns)) {
    float Cvalue = 0.0;
    for (int k = 0; k < numAColumns; ++k)
      Cvalue += A[Row * numAColumns + k] * B[k * numBColumns + Col];
    C[Row * numCColumns + Col] = Cvalue;
  }
}

int main(int argc, char **argv) {
  wbArg_t args;
  float *hostA;
  args = wbArg_read(argc, argv);
  wbTime_start(Generic, "Importing data and creating memory on host");
  dim3 DimGrid(1, 1, 1);
  matrixMultiply<<<DimGrid, DimGrid>>>(hostA, hostA, hostA, 1, 1, 1, 1, 1, 1);
  return 0;
}
