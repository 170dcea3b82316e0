"use strict";
/* The picture viewer of musigma: compares input and result, and reads values and their errors.

   musigmaViewer.mount(element, data, measure) fills a block element and returns {destroy()}. What the
   element held before stays below the picture. The function measure is optional: it promises for a box
   {low: [...], high: [...], coverage}, the interval of the mean of each channel in levels of 255. It needs style.css and the class "musigma" on itself or
   around it; data-theme="light" or "dark" beside that class overrides the theme of the system.
   Several viewers can live in one document. Nothing is fetched, and no style or script text is made, so that a strict content
   security policy holds. On load, every element with data-musigma="ID" is mounted with the JSON of
   the script element that has this id.

   data (made by musigma.restoration.viewer.data.ViewerData):
     shown, full  [width, height] of the result in the viewer, and in its file
     channels     names of the channels, one or three
     tile         side of a tile in pixels
     colors      base64 of 256 RGB colors, for errors from 0 to the end of the scale
     layers       {input, result, alpha (optional)}; each layer is
                  {size: [width, height], type: MIME type, levels: [{factor, tiles}]}.
                  A level is smaller than the layer by its factor; its tiles are base64, row by row.
     maps         error maps, [{quantity: "sigma" | "half_width" | "error", name, caption,
                  top: end of the color scale, quantiles: [101 levels], layer}].
                  A byte b of a map means 2 ** (8 b / 255) - 1 levels of 255. */
(() => {
const MAX_TILES = 96;  // decoded tiles that a layer keeps, of 1 MB each
const MAX_SCALE = 32;  // screen pixels per picture pixel
const SURE = 128;  // index of the first color of what is faded

const clamp = (value, low, high) => Math.min(Math.max(value, low), high);
const levelOf = (byte) => 2 ** (8 * byte / 255) - 1;
const LEVELS = Float32Array.from({ length: 256 }, (_, byte) => levelOf(byte));
const shortly = (value) => value.toFixed(value < 9.95 ? 1 : 0);
let numViewers = 0;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function bytesOf(text) {
  const raw = atob(text);
  const bytes = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
  return bytes;
}

function canvasOf(width, height) {
  const canvas = make("canvas");
  canvas.width = width;
  canvas.height = height;
  return canvas;
}

const brush = (canvas) => canvas.getContext("2d", { willReadFrequently: true });

/* A picture in tiles, which are decoded when they are first needed. */
class Layer {
  constructor(stored, tile, busy) {
    [this.width, this.height] = stored.size;
    this.type = stored.type;
    this.tile = tile;
    this.busy = busy;
    this.levels = stored.levels.map(({ factor, tiles }) => {
      const width = Math.ceil(this.width / factor), height = Math.ceil(this.height / factor);
      return { factor, tiles, width, height, columns: Math.ceil(width / tile) };
    });
    this.decoded = new Map();
    this.samples = new Map();
    this.regions = [];
  }

  /* Return {promise, bitmap}; the bitmap is missing until it is decoded. */
  load(level, index) {
    const key = `${level} ${index}`;
    let entry = this.decoded.get(key);
    if (!entry) {
      const blob = new Blob([bytesOf(this.levels[level].tiles[index])], { type: this.type });
      const options = { colorSpaceConversion: "none", premultiplyAlpha: "none" };
      entry = {};
      entry.promise = this.busy(createImageBitmap(blob, options).then((bitmap) => (entry.bitmap = bitmap)));
    }
    this.decoded.delete(key);
    this.decoded.set(key, entry);  // the last one in the map was used last
    if (this.decoded.size > MAX_TILES) this.decoded.delete(this.decoded.keys().next().value);
    return entry;
  }

  /* Return the samples of a tile of the first level, four bytes a pixel. */
  pixels(index) {
    if (!this.samples.has(index)) {
      this.samples.set(index, this.load(0, index).promise.then((bitmap) => {
        const context = brush(canvasOf(bitmap.width, bitmap.height));
        context.drawImage(bitmap, 0, 0);
        return context.getImageData(0, 0, bitmap.width, bitmap.height);
      }));
      if (this.samples.size > 4) this.samples.delete(this.samples.keys().next().value);
    }
    return this.samples.get(index);
  }

  /* Return the samples of one pixel. */
  async at(x, y) {
    const { tile } = this;
    const image = await this.pixels(Math.floor(y / tile) * this.levels[0].columns + Math.floor(x / tile));
    const start = 4 * ((y % tile) * image.width + x % tile);
    return image.data.slice(start, start + 3);
  }

  /* Return the tiles that touch a part of a level, drawn side by side as far as they are decoded. */
  region(level, left, top, right, bottom) {
    const { tile } = this, { width, height, columns } = this.levels[level];
    const first = [Math.floor(left / tile), Math.floor(top / tile)];
    const last = [Math.ceil(right / tile), Math.ceil(bottom / tile)];
    const key = `${first} ${last}`;
    let region = this.regions[level];
    if (region?.key !== key) {
      const [x, y] = [first[0] * tile, first[1] * tile];
      const canvas = canvasOf(Math.min(last[0] * tile, width) - x, Math.min(last[1] * tile, height) - y);
      region = { key, x, y, canvas, context: brush(canvas), missing: new Set(), version: 0, painted: {} };
      for (let row = first[1]; row < last[1]; row++) {
        for (let column = first[0]; column < last[0]; column++) region.missing.add(row * columns + column);
      }
      this.regions[level] = region;
    }
    for (const index of region.missing) {
      const { bitmap } = this.load(level, index);
      if (!bitmap) continue;
      const column = index % columns, row = Math.floor(index / columns);
      region.context.drawImage(bitmap, column * tile - region.x, row * tile - region.y);
      region.missing.delete(index);
      region.version++;
    }
    return region;
  }
}

/* Return a region in other colors: inks[v(r) + v(g) + v(b)], where v is a table of values. */
function paint(region, name, values, inks) {
  const { canvas, version } = region;
  const before = region.painted[name];
  if (before?.version === version && before.values === values && before.inks === inks) return before.canvas;
  const image = region.context.getImageData(0, 0, canvas.width, canvas.height);
  const samples = image.data, pixels = new Uint32Array(image.data.buffer);
  for (let p = 0, s = 0; p < pixels.length; p++, s += 4) {
    if (!samples[s + 3]) continue;  // not decoded yet
    const value = values[samples[s]] + values[samples[s + 1]] + values[samples[s + 2]];
    pixels[p] = inks[value < 255 ? Math.round(value) : 255];
  }
  const painted = before?.canvas ?? canvasOf(canvas.width, canvas.height);
  painted.getContext("2d").putImageData(image, 0, 0);
  region.painted[name] = { version, values, inks, canvas: painted };
  return painted;
}

/* Return 256 colors as one number each, from a function that gives [r, g, b, alpha]. */
function inksOf(color) {
  const bytes = new Uint8ClampedArray(1024);
  for (let i = 0; i < 256; i++) bytes.set(color(i), 4 * i);
  return new Uint32Array(bytes.buffer);
}

const ALPHA_VALUES = Float32Array.from({ length: 256 }, (_, byte) => byte / 3);
const TRANSPARENCY = inksOf((i) => [0, 0, 0, 255 - i]);
const FADED = inksOf((i) => [0, 0, 0, i >= SURE ? 255 : 0]);

/* Return two pictures to fill with: a checkerboard, and stripes for what is faded. */
function patterns(ratio) {
  const side = Math.round(8 * ratio);
  const board = canvasOf(2 * side, 2 * side), stripes = canvasOf(side, side);
  let context = board.getContext("2d");
  context.fillStyle = "#c9c9c9";
  context.fillRect(0, 0, 2 * side, 2 * side);
  context.fillStyle = "#f2f2f2";
  context.fillRect(0, 0, side, side);
  context.fillRect(side, side, side, side);
  context = stripes.getContext("2d");
  context.fillStyle = "rgb(120 122 126 / 90%)";
  context.fillRect(0, 0, side, side);
  context.strokeStyle = "rgb(150 152 156)";
  context.lineWidth = ratio;
  for (const shift of [-side, 0, side]) {
    context.moveTo(shift, side);
    context.lineTo(shift + side, 0);
  }
  context.stroke();
  return { board, stripes };
}

class Viewer {
  constructor(element, data, measure) {
    this.element = element;
    this.data = data;
    this.measure = measure;
    [this.width, this.height] = data.shown;
    this.id = `musigma-${numViewers++}-`;
    this.numBusy = 0;
    const layerOf = (stored) => new Layer(stored, data.tile, (work) => this.busy(work));
    this.input = layerOf(data.layers.input);
    this.result = layerOf(data.layers.result);
    this.alpha = data.layers.alpha && layerOf(data.layers.alpha);
    this.maps = data.maps.map((map) => ({ ...map, layer: layerOf(map.layer) }));
    this.judge = this.maps.find((map) => map.quantity === "half_width") ?? this.maps.find((map) => map.quantity === "sigma");
    this.colors = bytesOf(data.colors);
    this.view = { scale: 0, x: this.width / 2, y: this.height / 2 };
    this.point = { x: Math.floor(0.75 * this.width), y: Math.floor(0.5 * this.height) };
    this.box = null;
    this.tool = "slider";
    this.pointers = new Map();
    this.build();
    this.listen();
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(this.stage);
    this.read();
  }

  destroy() {
    this.observer.disconnect();
    this.element.replaceChildren(...this.about);
    this.element.classList.remove("mu-viewer");
    this.destroyed = true;
  }

  /* ---------- The elements ---------- */

  build() {
    this.element.classList.add("mu-viewer");
    this.about = [...this.element.childNodes];
    this.element.replaceChildren(make("div", { class: "mu-layout" },
      make("div", { class: "mu-main" }, this.buildStage(), this.buildScale(), this.buildToolbar()),
      make("div", { class: "mu-side" }, this.buildReading(), this.buildMaps(), this.buildBox()),
      make("div", { class: "mu-below" }, ...this.about)));
  }

  buildStage() {
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.mark = make("div", { class: "mu-mark" });
    this.frame = make("div", { class: "mu-frame", hidden: true });
    this.split = make("input", {
      class: "mu-split", type: "range", min: 0, max: 100, step: "any", value: 50, autocomplete: "off",
      "aria-label": "Boundary between input and result",
    });
    this.status = make("div", { class: "mu-unseen", role: "status" });
    this.stage = make("div", {
      class: "mu-stage", tabindex: 0, role: "application", "aria-describedby": `${this.id}keys`,
      "aria-label": "Picture: input on the left, result on the right",
    },
      this.canvas,
      make("span", { class: "mu-tag mu-left" }, "Input"),
      make("span", { class: "mu-tag mu-right" }, "Result"),
      this.frame, this.mark, this.split,
    );
    this.stage.style.aspectRatio = `${this.width} / ${this.height}`;
    return this.stage;
  }

  buildScale() {
    const bar = canvasOf(256, 1), context = bar.getContext("2d");
    bar.setAttribute("aria-hidden", "true");
    const inks = inksOf((i) => [...this.colors.slice(3 * i, 3 * i + 3), 255]);
    context.putImageData(new ImageData(new Uint8ClampedArray(inks.buffer), 256, 1), 0, 0);
    this.ticks = [0, 1, 2].map(() => make("span"));
    this.caption = make("p");
    this.scale = make("div", { class: "mu-scale", hidden: true },
      bar, make("div", { class: "mu-ticks" }, ...this.ticks), this.caption);
    return this.scale;
  }

  buildToolbar() {
    const button = (label, name, action) => make("button", { type: "button", "aria-label": name, title: name, click: action }, label);
    this.zoomText = make("output", { class: "mu-zoom", "aria-label": "Zoom" });
    const keys = make("p", { class: "mu-quiet mu-keys", id: `${this.id}keys` },
      "Wheel or pinch: zoom. Drag: slider, or move when zoomed. Keys on the picture: arrows move the point " +
      "(Shift: by ten), + and \u2212 zoom, 0 fits, 1 shows one picture pixel per screen pixel.");
    return make("div", { class: "mu-tools" },
      make("div", { class: "mu-row" },
        make("div", { class: "mu-buttons", role: "group", "aria-label": "Zoom" },
          button("\u2212", "Zoom out", () => this.zoom(1 / 1.5)),
          this.zoomText,
          button("+", "Zoom in", () => this.zoom(1.5)),
          button("Fit", "Fit the picture", () => this.fit()),
          button("1:1", "One picture pixel per screen pixel", () => this.zoom(1 / this.view.scale))),
        this.choice("Drag", "tool", [["slider", "Slider"], ["move", "Move"], ["box", "Box"]], (value) => {
          this.tool = value;
          this.toolChosen = true;
          this.ask();
        }),
        ...(this.isEnlarged ? [this.choice("Input", "input", [["smooth", "Smooth"], ["pixels", "Pixels"]], (value) => {
          this.hasPixels = value === "pixels";
          this.ask();
        })] : [])),
      keys, this.status);
  }

  get isEnlarged() {
    return this.input.width < this.width || this.input.height < this.height;
  }

  /* A group of radio buttons; the first choice is the one that holds at the start. */
  choice(legend, name, choices, action) {
    const buttons = choices.map(([value, label], number) => make("label", {},
      make("input", {
        type: "radio", name: this.id + name, value, checked: number === 0, autocomplete: "off",
        change: (event) => action(event.target.value),
      }),
      make("span", {}, label)));
    return make("fieldset", { class: "mu-choice" }, make("legend", {}, legend), make("div", {}, ...buttons));
  }

  range(label, name, attributes, action) {
    const id = this.id + name;
    const text = make("output", { for: id });
    const input = make("input", {
      id, type: "range", autocomplete: "off", ...attributes, input: () => action(Number(input.value), text),
    });
    return make("div", { class: "mu-range" }, make("label", { for: id }, label), input, text);
  }

  section(title, ...children) {
    const id = `${this.id}${title.replace(/\W/g, "-")}`;
    return make("section", { class: "mu-panel", "aria-labelledby": id }, make("h2", { id }, title), ...children);
  }

  table(rows) {
    const head = make("tr", {}, make("td"), ...this.data.channels.map((name) => make("th", { scope: "col" }, name)));
    const body = make("tbody");
    for (const name of rows) {
      const cells = this.data.channels.map(() => make("td"));
      body.append(make("tr", {}, make("th", { scope: "row" }, name), ...cells));
    }
    return make("table", { class: "mu-numbers" }, make("thead", {}, head), body);
  }

  fill(row, texts) {
    texts.forEach((text, channel) => { row.cells[channel + 1].textContent = text; });
  }

  buildReading() {
    this.position = make("span");
    this.swatch = make("span", { class: "mu-swatch", "aria-hidden": "true" });
    const names = ["Input", "Result", ...this.maps.map((map) => map.name)];
    this.reading = this.table(this.alpha ? [...names, "Opacity"] : names);
    const section = this.section("Pixel", this.reading);
    section.firstChild.append(" ", this.position, " ", this.swatch);
    return section;
  }

  buildMaps() {
    if (!this.maps.length) return this.section("Error", make("p", { class: "mu-quiet" }, "This model predicts no error."));
    const choices = [["", "Off"], ...this.maps.map((map, number) => [number, map.name])];
    const strength = this.range("Strength of the map", "strength", { min: 5, max: 100, value: 70, disabled: true }, (value) => {
      this.strength = value / 100;
      this.inks = null;
      this.ask();
    });
    this.strength = 0.7;
    const section = this.section("Error map", this.choice("Laid over the result", "map", choices, (value) => {
      this.show(value === "" ? null : this.maps[value]);
      strength.querySelector("input").disabled = !this.map;
    }), strength);
    if (this.judge) section.append(this.buildConfidence());
    return section;
  }

  buildConfidence() {
    const error = this.judge.quantity === "half_width" ? "half the interval" : "sigma";
    const describe = (share, text) => {
      const threshold = this.judge.quantiles[share];
      this.fade = share === 100 ? null : Float32Array.from(LEVELS, (level) => level / 3 * SURE / Math.max(threshold, 1e-6));
      text.textContent = share === 100 ? "All pixels are shown."
        : `Striped: the least sure ${100 - share} %, where ${error} is over ${shortly(threshold)} levels.`;
      this.ask();
    };
    const control = this.range("Show only the surest pixels", "confidence", { min: 1, max: 100, value: 100 }, describe);
    describe(100, control.lastChild);
    return control;
  }

  buildBox() {
    this.fields = {};
    const limits = { x: [0, this.width - 1], y: [0, this.height - 1], width: [1, this.width], height: [1, this.height] };
    const labels = { x: "Left", y: "Top", width: "Width", height: "Height" };
    const grid = make("div", { class: "mu-fields" });
    for (const [name, [min, max]] of Object.entries(limits)) {
      const id = `${this.id}box-${name}`;
      this.fields[name] = make("input", { id, type: "number", min, max, step: 1, inputmode: "numeric", autocomplete: "off", change: () => this.typeBox() });
      grid.append(make("div", {}, make("label", { for: id }, labels[name]), this.fields[name]));
    }
    this.clearButton = make("button", { type: "button", disabled: true, click: () => this.setBox(null) }, "Clear");
    grid.append(this.clearButton);
    const sign = this.judge?.quantity === "half_width" ? "\u00b1" : "sigma";
    const rows = this.judge ? ["Mean", `Least ${sign}`, `Most ${sign}`] : ["Mean"];
    this.means = this.table(this.measure ? [...rows, "From", "To"] : rows);
    this.boxText = make("p", { class: "mu-quiet" });
    const section = this.section("Box",
      make("p", { class: "mu-quiet" }, "Press Box beside Drag and draw on the picture, or type the box in pixels."),
      grid, this.means, this.boxText);
    if (this.judge) {
      section.append(make("p", { class: "mu-quiet" },
        "Least: if the errors of the pixels were independent. Most: if they were all the same. Errors of " +
        "neighbors are correlated, so the interval of the mean cannot be computed from those of its pixels: " +
        "expect it between the two." + (this.measure ? "" : " The command musigma measure computes it " +
        "with weights that know the correlations, such as edsr-baseline.")));
    }
    if (this.measure) {
      section.append(make("p", { class: "mu-quiet" },
        "From, to: the interval of the mean, by the model's knowledge of how errors of neighbors are correlated."));
    }
    this.clearNumbers();
    return section;
  }

  /* ---------- Events ---------- */

  listen() {
    const { stage } = this;
    this.split.addEventListener("input", () => this.ask());
    stage.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    stage.addEventListener("touchstart", (event) => {
      if (event.touches.length > 1) event.preventDefault();  // a pinch is for the picture
    }, { passive: false });
    stage.addEventListener("pointerdown", (event) => this.press(event));
    stage.addEventListener("pointermove", (event) => this.drag(event));
    stage.addEventListener("pointerup", (event) => this.release(event));
    stage.addEventListener("pointercancel", (event) => this.release(event, true));
    stage.addEventListener("dragstart", (event) => event.preventDefault());
    stage.addEventListener("keydown", (event) => this.key(event));
  }

  /* Return where an event is: in screen pixels of the canvas, and in pixels of the picture. */
  locate(event) {
    const rect = this.stage.getBoundingClientRect();
    const x = (event.clientX - rect.left) * this.ratio, y = (event.clientY - rect.top) * this.ratio;
    const { left, top } = this.corner();
    return { x, y, px: (x - left) / this.view.scale, py: (y - top) / this.view.scale };
  }

  wheel(event) {
    const lines = event.deltaMode === 1 ? 16 : 1;
    const factor = Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.002));
    if (factor < 1 && !this.isZoomed && !event.ctrlKey) return;  // the document may scroll
    event.preventDefault();
    this.zoom(factor, this.locate(event));
  }

  /* Return whether a place is on the line between input and result, as wide as its knob. */
  isOnLine({ x }) {
    return Math.abs(x - this.boundary) <= 22 * this.ratio;
  }

  press(event) {
    if (event.button > 1) return;
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    this.stage.setPointerCapture(event.pointerId);
    if (event.pointerType === "mouse") event.preventDefault();
    const start = this.locate(event);
    const isOnLine = this.isOnLine(start);
    const tool = event.button === 1 ? "move" : isOnLine ? "slider" : this.tool;
    (isOnLine ? this.split : this.stage).focus({ preventScroll: true });
    this.gesture = this.pointers.size > 1 ? { tool: "pinch", ...this.span() }
      : { tool, start, clientX: event.clientX, clientY: event.clientY, view: { ...this.view } };
  }

  /* Return middle and distance of two fingers. */
  span() {
    const [a, b] = this.pointers.values();
    return { clientX: (a.x + b.x) / 2, clientY: (a.y + b.y) / 2, distance: Math.hypot(a.x - b.x, a.y - b.y) };
  }

  drag(event) {
    if (!this.pointers.has(event.pointerId)) {
      const place = this.locate(event);
      this.stage.dataset.near = this.isOnLine(place);
      if (event.pointerType === "mouse") this.pointAt(place);
      return;
    }
    this.pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
    const { gesture } = this;
    if (gesture.tool === "pinch") {
      if (this.pointers.size > 1) this.pinch();
      return;
    }
    const dx = event.clientX - gesture.clientX, dy = event.clientY - gesture.clientY;
    if (!gesture.moved && Math.hypot(dx, dy) < 4) return;
    gesture.moved = true;
    if (gesture.tool === "slider") this.setSplit(this.locate(event).x);
    else if (gesture.tool === "move") this.pan(gesture.view, dx, dy);
    else this.setBox(this.boxBetween(gesture.start, this.locate(event)), false);
  }

  pinch() {
    const before = this.gesture, now = this.span();
    this.gesture = { tool: "pinch", ...now };
    this.pan(this.view, now.clientX - before.clientX, now.clientY - before.clientY);
    this.zoom(now.distance / Math.max(before.distance, 1), this.locate(now));
  }

  release(event, isCancelled = false) {
    if (!this.pointers.delete(event.pointerId)) return;
    const { gesture } = this;
    if (gesture.tool === "pinch") return;
    if (gesture.tool === "box" && gesture.moved) this.measureBox();
    else if (!gesture.moved && !isCancelled) this.pointAt(this.locate(event));
  }

  key(event) {
    if (event.target !== this.stage || event.ctrlKey || event.metaKey || event.altKey) return;
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    const action = { "+": () => this.zoom(1.5), "=": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5), 0: () => this.fit(), 1: () => this.zoom(1 / this.view.scale) }[event.key];
    if (!step && !action) return;
    event.preventDefault();
    if (action) action();
    else this.movePoint(step, event.shiftKey ? 10 : 1);
  }

  /* ---------- The view ---------- */

  resize() {
    this.ratio = window.devicePixelRatio || 1;
    const wasZoomed = this.isZoomed;
    this.canvas.width = Math.max(1, Math.round(this.stage.clientWidth * this.ratio));
    this.canvas.height = Math.max(1, Math.round(this.stage.clientHeight * this.ratio));
    this.patterns = patterns(this.ratio);
    if (!wasZoomed) this.view.scale = 0;
    this.keepInside();
    this.draw();  // at once, since a canvas of a new size is empty
  }

  get fitScale() {
    return Math.min(this.canvas.width / this.width, this.canvas.height / this.height);
  }

  get isZoomed() {
    return this.view.scale > 1.001 * this.fitScale;
  }

  corner() {
    const { scale, x, y } = this.view;
    return { left: Math.round(this.canvas.width / 2 - x * scale), top: Math.round(this.canvas.height / 2 - y * scale) };
  }

  keepInside() {
    const { view } = this, fit = this.fitScale;
    view.scale = clamp(view.scale, fit, Math.max(MAX_SCALE, fit));
    for (const [axis, length, room] of [["x", this.width, this.canvas.width], ["y", this.height, this.canvas.height]]) {
      const half = room / 2 / view.scale;
      view[axis] = 2 * half >= length ? length / 2 : clamp(view[axis], half, length - half);
    }
    if (!this.toolChosen && this.tool !== "box") this.setTool(this.isZoomed ? "move" : "slider");
    this.ask();
  }

  setTool(tool) {
    this.tool = tool;
    this.element.querySelector(`input[name="${this.id}tool"][value="${tool}"]`).checked = true;
  }

  fit() {
    this.view.scale = 0;
    if (this.tool === "move") this.toolChosen = false;
    this.keepInside();
  }

  /* Zoom by a factor; what is at the place stays there. */
  zoom(factor, place) {
    const { view } = this;
    const { left, top } = this.corner();
    place ??= { x: left + view.scale * this.point.x, y: top + view.scale * this.point.y };
    const x = clamp(place.x, 0, this.canvas.width), y = clamp(place.y, 0, this.canvas.height);
    const px = (x - left) / view.scale, py = (y - top) / view.scale;
    view.scale = clamp(view.scale * factor, this.fitScale, Math.max(MAX_SCALE, this.fitScale));
    view.x = px + (this.canvas.width / 2 - x) / view.scale;
    view.y = py + (this.canvas.height / 2 - y) / view.scale;
    this.keepInside();
  }

  pan(view, dx, dy) {
    this.view.x = view.x - dx * this.ratio / view.scale;
    this.view.y = view.y - dy * this.ratio / view.scale;
    this.keepInside();
  }

  setSplit(x) {
    const { left, right } = this.visible;
    this.split.value = clamp(100 * (x - left) / (right - left), 0, 100);
    this.ask();
  }

  /* ---------- Drawing ---------- */

  /* Say that the picture is busy until a promise is kept, and draw it then. */
  busy(work) {
    this.numBusy++;
    this.ask();
    return work.finally(() => {
      this.numBusy--;
      this.ask();
    });
  }

  ask() {
    if (this.asked || this.destroyed) return;
    this.asked = true;
    this.stage?.setAttribute("aria-busy", "true");
    requestAnimationFrame(() => {
      this.asked = false;
      if (!this.destroyed) this.draw();
    });
  }

  show(map) {
    this.map = map;
    this.scale.hidden = !map;
    if (map) {
      this.mapValues = Float32Array.from(LEVELS, (level) => 255 / 3 * level / map.top);
      this.ticks[0].textContent = "0";
      this.ticks[1].textContent = map.top / 2;
      this.ticks[2].textContent = `${map.top} or more`;
      this.caption.textContent = map.caption;
    }
    this.ask();
  }

  draw() {
    if (!this.view.scale) return;
    const { canvas, view } = this;
    const { left, top } = this.corner();
    this.visible = {
      left: Math.max(0, left), top: Math.max(0, top),
      right: Math.min(canvas.width, Math.round(left + this.width * view.scale)),
      bottom: Math.min(canvas.height, Math.round(top + this.height * view.scale)),
    };
    const boundary = this.boundary = this.visible.left + (this.visible.right - this.visible.left) * this.split.value / 100;
    const context = canvas.getContext("2d");
    context.clearRect(0, 0, canvas.width, canvas.height);
    this.within(context, this.visible.left, boundary, () => this.stamp(context, this.input, !this.hasPixels));
    this.within(context, boundary, this.visible.right, () => {
      const isSmooth = view.scale < 2;
      this.stamp(context, this.result, isSmooth);
      if (this.map) {
        // Small errors are transparent, so that the result shows where the errors are small.
        this.inks ??= inksOf((i) => [...this.colors.slice(3 * i, 3 * i + 3), 255 * (i / 255) ** (1 / this.strength - 1)]);
        this.stamp(context, this.map.layer, isSmooth, ["map", this.mapValues, this.inks]);
      }
      if (this.fade) this.cover(context, this.judge.layer, ["faded", this.fade, FADED], this.patterns.stripes);
    });
    if (this.alpha) {
      this.within(context, this.visible.left, this.visible.right, () =>
        this.cover(context, this.alpha, ["alpha", ALPHA_VALUES, TRANSPARENCY], this.patterns.board));
    }
    this.place();
    this.stage.setAttribute("aria-busy", this.asked || this.numBusy > 0);
  }

  within(context, left, right, action) {
    const { top, bottom } = this.visible;
    if (right <= left) return;
    context.save();
    context.beginPath();
    context.rect(left, top, right - left, bottom - top);
    context.clip();
    action();
    context.restore();
  }

  /* Draw what is visible of a layer, in its own colors or painted. */
  stamp(context, layer, isSmooth, painting) {
    const coarsest = layer.levels.length - 1;
    const across = this.width * this.view.scale / layer.width;  // screen pixels per pixel of the layer
    let level = 0;
    while (level < coarsest && across * layer.levels[level + 1].factor <= 1.25) level++;
    const region = this.regionOf(layer, level);
    context.imageSmoothingEnabled = isSmooth;
    context.imageSmoothingQuality = "high";
    if (region.missing.size && level < coarsest) {
      this.stampRegion(context, layer, coarsest, this.regionOf(layer, coarsest), painting);
      if (painting) return;  // two transparent layers would be darker than one
    }
    this.stampRegion(context, layer, level, region, painting);
  }

  unit(layer, level) {
    const { factor } = layer.levels[level], { scale } = this.view;
    return [factor * scale * this.width / layer.width, factor * scale * this.height / layer.height];
  }

  regionOf(layer, level) {
    const [across, down] = this.unit(layer, level), { width, height } = layer.levels[level];
    const { left, top } = this.corner(), seen = this.visible;
    return layer.region(level,
      clamp(Math.floor((seen.left - left) / across) - 1, 0, width - 1),
      clamp(Math.floor((seen.top - top) / down) - 1, 0, height - 1),
      clamp(Math.ceil((seen.right - left) / across) + 1, 1, width),
      clamp(Math.ceil((seen.bottom - top) / down) + 1, 1, height));
  }

  stampRegion(context, layer, level, region, painting) {
    const [across, down] = this.unit(layer, level), { left, top } = this.corner();
    const picture = painting ? paint(region, ...painting) : region.canvas;
    context.drawImage(picture, left + region.x * across, top + region.y * down, picture.width * across, picture.height * down);
  }

  /* Cover the picture with a pattern where a painted layer is opaque. */
  cover(context, layer, painting, pattern) {
    this.sheet ??= canvasOf(1, 1);
    this.sheet.width = this.canvas.width;  // this also clears it
    this.sheet.height = this.canvas.height;
    const sheet = this.sheet.getContext("2d");
    this.stamp(sheet, layer, this.view.scale < 2, painting);
    sheet.globalCompositeOperation = "source-in";
    sheet.fillStyle = sheet.createPattern(pattern, "repeat");
    sheet.fillRect(0, 0, this.sheet.width, this.sheet.height);
    context.drawImage(this.sheet, 0, 0);
  }

  /* Put the elements over the canvas into their places. */
  place() {
    const { style } = this.stage, { left, right, top } = this.visible, { scale } = this.view;
    const share = `${Math.round(this.split.value)} % input`;
    this.split.setAttribute("aria-valuetext", share);
    const css = (pixels) => `${pixels / this.ratio}px`;
    style.setProperty("--left", css(left));
    style.setProperty("--right", css(this.canvas.width - right));
    style.setProperty("--top", css(top));
    this.stage.dataset.tool = this.tool;
    this.stage.dataset.free = this.isZoomed || this.tool !== "slider";
    this.zoomText.textContent = `${(100 * scale).toFixed(scale < 0.1 ? 1 : 0)} %`;
    const corner = this.corner();
    this.mark.style.left = css(corner.left + (this.point.x + 0.5) * scale);
    this.mark.style.top = css(corner.top + (this.point.y + 0.5) * scale);
    this.frame.hidden = !this.box;
    if (this.box) {
      Object.assign(this.frame.style, {
        left: css(corner.left + this.box.x * scale), top: css(corner.top + this.box.y * scale),
        width: css(this.box.width * scale), height: css(this.box.height * scale),
      });
    }
  }

  /* ---------- Reading ---------- */

  pointAt({ px, py }) {
    const x = clamp(Math.floor(px), 0, this.width - 1), y = clamp(Math.floor(py), 0, this.height - 1);
    if (x === this.point.x && y === this.point.y) return;
    this.point = { x, y };
    this.ask();
    this.read();
  }

  movePoint([across, down], distance) {
    this.point.x = clamp(this.point.x + across * distance, 0, this.width - 1);
    this.point.y = clamp(this.point.y + down * distance, 0, this.height - 1);
    for (const [axis, room] of [["x", this.canvas.width], ["y", this.canvas.height]]) {
      const half = Math.max(room / 2 / this.view.scale - 1, 0);
      this.view[axis] = clamp(this.view[axis], this.point[axis] + 0.5 - half, this.point[axis] + 0.5 + half);
    }
    this.keepInside();
    this.read(true);
  }

  /* Return the samples of the pixel of a layer that lies under a pixel of the result. */
  sample(layer, { x, y }) {
    return layer.at(
      Math.min(Math.floor((x + 0.5) * layer.width / this.width), layer.width - 1),
      Math.min(Math.floor((y + 0.5) * layer.height / this.height), layer.height - 1));
  }

  async read(isSpoken = false) {
    const point = { ...this.point };
    const layers = [this.input, this.result, ...this.maps.map((map) => map.layer), ...(this.alpha ? [this.alpha] : [])];
    const samples = await this.busy(Promise.all(layers.map((layer) => this.sample(layer, point))));
    if (this.destroyed || point.x !== this.point.x || point.y !== this.point.y) return;
    const numChannels = this.data.channels.length;
    const [input, result, ...others] = samples.map((bytes) => [...bytes].slice(0, numChannels));
    const rows = [...this.reading.tBodies[0].rows];
    this.fill(rows[0], input);
    this.fill(rows[1], result);
    this.maps.forEach((map, number) => this.fill(rows[number + 2], others[number].map((byte, channel) => {
      const text = shortly(levelOf(byte));
      return map.quantity === "half_width" ? `${result[channel]}\u2009\u00b1\u202f${text}` : text;
    })));
    if (this.alpha) this.fill(rows.at(-1), [`${Math.round(others.at(-1)[0] / 2.55)} %`]);
    const [x, y] = ["x", "y"].map((axis, i) => Math.floor((point[axis] + 0.5) * this.data.full[i] / this.data.shown[i]));
    this.position.textContent = `x ${x}, y ${y}`;
    this.swatch.style.background = `rgb(${samples[1].join(" ")})`;
    if (isSpoken) this.say([this.position.textContent, ...rows.map((row) => [...row.cells].map((cell) => cell.textContent).join(" "))].join(". "));
  }

  say(text) {
    this.status.textContent = text;
  }

  /* ---------- The box ---------- */

  boxBetween(a, b) {
    const edge = (value, length) => clamp(Math.floor(value), 0, length - 1);
    const [x0, x1] = [edge(a.px, this.width), edge(b.px, this.width)].sort((m, n) => m - n);
    const [y0, y1] = [edge(a.py, this.height), edge(b.py, this.height)].sort((m, n) => m - n);
    return { x: x0, y: y0, width: x1 - x0 + 1, height: y1 - y0 + 1 };
  }

  typeBox() {
    const number = (name) => this.fields[name].value === "" ? NaN : Math.round(Number(this.fields[name].value));
    const box = { x: number("x"), y: number("y"), width: number("width"), height: number("height") };
    if (Object.values(box).some(Number.isNaN)) return;  // the other fields will follow
    box.x = clamp(box.x, 0, this.width - 1);
    box.y = clamp(box.y, 0, this.height - 1);
    box.width = clamp(box.width, 1, this.width - box.x);
    box.height = clamp(box.height, 1, this.height - box.y);
    this.setBox(box);
  }

  setBox(box, isFinal = true) {
    this.box = box;
    for (const [name, field] of Object.entries(this.fields)) field.value = box ? box[name] : "";
    this.clearButton.disabled = !box;
    this.clearNumbers();
    this.ask();
    if (box && isFinal) this.measureBox();
  }

  clearNumbers() {
    this.boxText.textContent = "No box yet.";
    for (const row of this.means.tBodies[0].rows) this.fill(row, this.data.channels.map(() => "\u2013"));
  }

  /* Return how often each byte occurs in a box, for each channel. */
  async histograms(layer, box) {
    const { tile } = layer, { columns } = layer.levels[0];
    const counts = this.data.channels.map(() => new Float64Array(256));
    const right = box.x + box.width, bottom = box.y + box.height;
    for (let row = Math.floor(box.y / tile); row * tile < bottom; row++) {
      for (let column = Math.floor(box.x / tile); column * tile < right; column++) {
        const image = await layer.pixels(row * columns + column);
        if (this.box !== box) return null;  // another one was drawn
        const x0 = Math.max(box.x - column * tile, 0), x1 = Math.min(right - column * tile, image.width);
        const y0 = Math.max(box.y - row * tile, 0), y1 = Math.min(bottom - row * tile, image.height);
        for (let y = y0; y < y1; y++) {
          for (let s = 4 * (y * image.width + x0), end = 4 * (y * image.width + x1); s < end; s += 4) {
            for (let c = 0; c < counts.length; c++) counts[c][image.data[s + c]]++;
          }
        }
      }
    }
    return counts;
  }

  async measureBox() {
    const { box } = this;
    this.boxText.textContent = "Computing \u2026";
    const values = await this.busy(this.histograms(this.result, box));
    const errors = values && this.judge && await this.busy(this.histograms(this.judge.layer, box));
    if (this.destroyed || this.box !== box) return;
    const total = box.width * box.height;
    const [meanRow, leastRow, mostRow] = this.means.tBodies[0].rows;
    const sum = (counts, value) => counts.reduce((part, count, byte) => part + count * value(byte), 0);
    this.fill(meanRow, values.map((counts) => (sum(counts, (byte) => byte) / total).toFixed(1)));
    if (errors) {
      this.fill(leastRow, errors.map((counts) => (Math.sqrt(sum(counts, (byte) => LEVELS[byte] ** 2)) / total).toPrecision(2)));
      this.fill(mostRow, errors.map((counts) => shortly(sum(counts, (byte) => LEVELS[byte]) / total)));
    }
    this.boxText.textContent = `${total} pixels.`;
    if (this.measure) await this.busy(this.readInterval(box));
    if (this.destroyed || this.box !== box) return;
    this.say(`Box of ${total} pixels. ${[...this.means.tBodies[0].rows].map((row) => row.innerText).join(". ")}`);
  }

  async readInterval(box) {
    const interval = await this.measure(box);
    if (this.destroyed || this.box !== box) return;
    if (interval.error) {
      this.boxText.textContent += ` No interval: ${interval.error}.`;
      return;
    }
    const [from, to] = [...this.means.tBodies[0].rows].slice(-2);
    this.fill(from, interval.low.map((value) => value.toFixed(1)));
    this.fill(to, interval.high.map((value) => value.toFixed(1)));
    this.boxText.textContent += ` From and to hold ${100 * interval.coverage} % of such means.`;
  }
}

globalThis.musigmaViewer = { mount: (element, data, measure) => new Viewer(element, data, measure) };
for (const element of document.querySelectorAll("[data-musigma]")) {
  musigmaViewer.mount(element, JSON.parse(document.getElementById(element.dataset.musigma).textContent));
}
})();
