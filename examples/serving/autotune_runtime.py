"""A model compiled by autotune behind MLServer: KServe's V2 protocol, with requests put into batches."""

import asyncio

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from mlserver.utils import get_model_uri

import autotune


class AutotuneModel(MLModel):
    """An ONNX model whose first dimension is open, or a file of `autotune compile`."""

    async def load(self) -> bool:
        path = await get_model_uri(self.settings)
        # Batches are as large as requests happen to come: they share programs, none is compiled while somebody waits.
        self._session = autotune.InferenceSession(path, on_new_shape="bucket")
        batch = self._session.get_inputs()[0].shape[0]
        if isinstance(batch, str):
            self._session.prepare(**{batch: self.settings.max_batch_size})
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        feeds = {given.name: NumpyCodec.decode_input(given) for given in payload.inputs}
        # A run lets go of Python's lock: on a thread, so that the next batch is collected meanwhile.
        results = await asyncio.to_thread(self._session.run, None, feeds)
        named = zip(self._session.get_outputs(), results)
        return InferenceResponse(
            model_name=self.name,
            model_version=self.version,
            outputs=[NumpyCodec.encode_output(spec.name, array) for spec, array in named],
        )
